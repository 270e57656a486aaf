/** The only place that calls a tool's code. It turns each ending into a value: a result, an exception of any kind, an abort. */
import { isBehindTarget } from '../../shared/circuits/circuit-key.ts';
import { isFirstOfFault } from '../../shared/circuits/shared-fault.ts';
import { classify, isToolError, stackOf } from '../../shared/errors/classify-error.ts';
import { type Failure, failureOf, PawlError } from '../../shared/errors/failure.ts';
import { redact, secretsIn } from '../../shared/errors/redaction.ts';
import type { RetryPolicy } from '../../shared/retries/retry.ts';
import { acceptingDigits } from '../../shared/schema/long-integers.ts';
import { fitToSchema, type Validator } from '../../shared/schema/validator.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { isPending } from '../../shared/tools/pending.ts';
import type { AnyTool, Readiness } from '../../shared/tools/tool.ts';
import { answerFault } from '../../shared/tools/tool-answers.ts';
import type { ToolContext } from '../../shared/tools/tool-context.ts';
import { normalizeResult, type ProbeAnswer, type ToolResult, unknownMembers } from '../../shared/tools/tool-result.ts';
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import { onAbort, withinMs } from '../../shared/util/wait.ts';
import type { AttemptResult } from '../attempt/attempt-result.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';
import { inAttempt } from '../attempt/uncaught-errors.ts';

/** A tool that is asked to stop has this long to clean up. */
const WIND_DOWN_MS = 2_000;

export interface AttemptOptions {
  readonly tool: AnyTool;
  readonly params: unknown;
  readonly context: ToolContext;
  flushProgress(): void;
  readonly running: RunningAttempt;
  readonly timeoutMs: number;
  /** The time until the call's deadline. */
  readonly remainingMs: number | undefined;
  readonly policy: RetryPolicy;
  readonly validateOutput: Validator | undefined;
  readonly log: Logger;
  /** The timers of the time limits. Default: the system's. */
  readonly schedule?: Schedule;
}

export async function runAttempt(options: AttemptOptions): Promise<AttemptResult> {
  return runGuarded(
    options,
    () => options.tool.run(options.params, options.context),
    (value) => {
      if (isPending(value)) return { kind: 'pending', pending: value };
      reportUnknownMembers(options, value);
      return checkedResult(value, options);
    },
  );
}

/** Tools whose results had unknown members: each is reported once. */
const reported = new WeakSet<AnyTool>();

/** The tool has run, so its result counts without them. */
function reportUnknownMembers({ tool, running: { callId }, log }: AttemptOptions, value: unknown): void {
  if (reported.has(tool)) return;
  const fault = unknownMembers(tool.name, value);
  if (fault === undefined) return;
  reported.add(tool);
  log.warn({ event: 'tool_answer_invalid', callId, toolName: tool.name }, fault);
}

/** Asks the tool about an attempt that left no record. Anything but a clear answer is `unknown`. */
export async function runProbe(options: AttemptOptions): Promise<ProbeAnswer<unknown> & { readonly fault?: string }> {
  const { tool, running, log } = options;
  let answer: ProbeAnswer<unknown> = { state: 'unknown' };
  let fault: string | undefined;
  const ending = await runGuarded(
    options,
    () => options.tool.probe?.(options.params, options.context),
    async (value) => {
      fault = answerFault('probe', tool.name, value);
      if (fault !== undefined) return { kind: 'failure', failure: failureOf('RESULT_INVALID', fault) };
      const probed = value as ProbeAnswer<unknown>;
      const result: AttemptResult =
        probed.state === 'done'
          ? await checkedResult(probed.result, options)
          : { kind: 'value', result: { output: null } };
      if (result.kind === 'failure') fault = result.failure.message;
      if (probed.state === 'not-done') answer = probed;
      else if (probed.state === 'done' && result.kind === 'value') answer = { state: 'done', result: result.result };
      return result;
    },
  );
  // An answer also counts when it came as the probe was ended from outside.
  const isAnswered = ending.kind === 'value' || (ending.kind === 'aborted' && ending.result !== undefined);
  if (fault === undefined) return isAnswered ? answer : { state: 'unknown' };
  log.error({ event: 'tool_answer_invalid', callId: running.callId, toolName: tool.name }, fault);
  return { state: 'unknown', fault };
}

/** The answer of a tool's `ready`. A failure or an abort of it leaves no effect. */
type ReadyResult =
  | { readonly kind: 'ready' }
  | { readonly kind: 'waiting'; readonly againInMs: number }
  | Exclude<AttemptResult, { readonly kind: 'value' }>;

/** The shortest time between two checks, whatever the tool returns. */
const SHORTEST_WAIT_MS = 50;

/** Asks the tool whether what the call waits for has come. */
export async function checkReady(options: AttemptOptions, waitedMs: number): Promise<ReadyResult> {
  let answer = { ready: true } as Readiness;
  const ending = await runGuarded(
    options,
    () => options.tool.ready?.(options.params, options.context, waitedMs),
    (value) => {
      const fault = answerFault('ready', options.tool.name, value);
      if (fault !== undefined) return { kind: 'failure', failure: failureOf('RESULT_INVALID', fault) };
      answer = value as Readiness;
      return { kind: 'value', result: { output: null } };
    },
  );
  switch (ending.kind) {
    case 'value':
    case 'pending':
      return answer.ready
        ? { kind: 'ready' }
        : { kind: 'waiting', againInMs: Math.max(answer.againInMs, SHORTEST_WAIT_MS) };
    case 'failure':
      return { kind: 'failure', failure: { ...ending.failure, nothingHappened: true } };
    case 'aborted':
      return { kind: 'aborted', reason: ending.reason, evidence: 'not-run' };
  }
}

async function runGuarded(
  options: AttemptOptions,
  run: () => unknown,
  accept: (value: unknown) => AttemptResult | Promise<AttemptResult>,
): Promise<AttemptResult> {
  const { running, tool, log } = options;
  // The process may have been suspended since the attempt began. Another worker may run the call by now, so it must not start here.
  running.fenceIfUnrenewed();
  if (running.signal.aborted)
    return { kind: 'aborted', reason: running.signal.reason as PawlError, evidence: 'not-run' };
  const stopTimer = startTimer(options);
  running.sideEffects = 0;
  const failureResult = (thrown: unknown): AttemptResult => {
    const failure = failureAfter(options, thrown);
    // A tool that ends because it was asked to stop, or that throws a `ToolError`, has no defect to look for.
    if (failure.class === 'tool' && !isToolError(thrown) && !running.signal.aborted)
      log.error(
        {
          event: 'tool_exception',
          callId: running.callId,
          toolName: tool.name,
          stack: redact(stackOf(thrown), secretsIn(options.params)),
        },
        'a tool threw',
      );
    return { kind: 'failure', failure };
  };
  const uncaught = new Promise<AttemptResult>((resolve) =>
    running.onUncaught((error) => resolve(failureResult(error))),
  );
  // An async function turns a synchronous throw into a rejection, so that both end in one place.
  // The returned value can throw as well, in a getter or a proxy.
  const toolResult = inAttempt(running, async () => run())
    .then(accept)
    .catch(failureResult);
  const finished = Promise.race([toolResult, uncaught]);
  const abort = abortReason(running.signal);
  try {
    const reason = await Promise.race([finished.then(() => undefined), abort.reason]);
    if (reason === undefined && !running.signal.aborted) return await finished;
    return await windDown(finished, (reason ?? running.signal.reason) as PawlError, options.schedule);
  } finally {
    stopTimer();
    abort.stop();
    options.flushProgress();
  }
}

/** An error proves that nothing happened for one step only. A `ToolError` of the tool covers all its steps. */
function failureAfter({ running: { sideEffects }, tool, params, policy }: AttemptOptions, thrown: unknown): Failure {
  const classified = classify(thrown, policy);
  const { targetParameter = '' } = tool.circuit;
  // A target is not to blame for the hosts to which it redirects.
  const isBehind = isBehindTarget(thrown, (params as Readonly<Record<string, unknown>> | null)?.[targetParameter]);
  const isCounted = !isBehind && isFirstOfFault(thrown);
  const failure = isCounted ? classified : { ...classified, againstCircuit: false };
  if (sideEffects === 0 || !failure.nothingHappened || isToolError(thrown)) return failure;
  return { ...failure, nothingHappened: false, afterEffect: true };
}

/** The tool was asked to stop. A result that it returns within a moment still counts. */
async function windDown(
  finished: Promise<AttemptResult>,
  reason: PawlError,
  schedule: Schedule | undefined,
): Promise<AttemptResult> {
  const lateResult = await withinMs(finished, WIND_DOWN_MS, schedule);
  if (lateResult?.kind === 'value') return { kind: 'aborted', reason, result: lateResult.result, evidence: 'unknown' };
  if (lateResult?.kind === 'pending')
    return { kind: 'aborted', reason, pending: lateResult.pending, evidence: 'unknown' };
  const proven =
    lateResult?.kind === 'failure' && lateResult.failure.nothingHappened && lateResult.failure.code !== reason.code;
  return { kind: 'aborted', reason, evidence: proven ? 'proven' : 'unknown' };
}

function abortReason(signal: AbortSignal): { readonly reason: Promise<PawlError>; stop(): void } {
  const { promise, resolve } = Promise.withResolvers<PawlError>();
  return { reason: promise, stop: onAbort(signal, () => resolve(signal.reason as PawlError)) };
}

function startTimer({ running, timeoutMs, remainingMs, schedule = systemSchedule }: AttemptOptions): () => void {
  const limitMs = Math.min(timeoutMs, remainingMs ?? timeoutMs);
  const reason = () => new PawlError('TIMEOUT', `The tool did not finish within ${Math.round(limitMs)} ms.`);
  return schedule(() => running.abort(reason()), limitMs);
}

/**
 * Normalises the value that a tool or a hook returned, and checks it against the output's schema. A valid value returns synchronously:
 * circuits count in the order in which attempts end, so a success must not be counted after a later failure.
 */
export function checkedResult(
  value: unknown,
  { tool, validateOutput }: Pick<AttemptOptions, 'tool' | 'validateOutput'>,
): AttemptResult | Promise<AttemptResult> {
  const result = normalizeResult(tool.name, value);
  if (typeof result === 'string') return invalidResult(result);
  if (validateOutput === undefined) return { kind: 'value', result };
  const validation = validateOutput(result.output);
  if (Array.isArray(validation) && validation.length === 0) return { kind: 'value', result };
  return fitResult(result, { tool, validateOutput }, validation);
}

/**
 * Accepts null for an optional field of the output, and a text of digits for a whole number beyond 2^53: the tool has run, and refusing
 * its output would not undo it.
 */
async function fitResult(
  result: ToolResult<unknown>,
  { tool, validateOutput }: { readonly tool: AnyTool; readonly validateOutput: Validator },
  validation: ReturnType<Validator>,
): Promise<AttemptResult> {
  const accepting = acceptingDigits(validateOutput);
  const found = accepting(result.output, validation);
  const { value: output, issues } = await fitToSchema(tool.outputSchema ?? {}, accepting, result.output, found);
  if (issues.length === 0) return { kind: 'value', result: output === result.output ? result : { ...result, output } };
  const list = issues.map((issue) => `${issue.path || 'output'}: ${issue.message}`).join('; ');
  return invalidResult(`The output of ${tool.name} does not match its schema: ${list}.`);
}

function invalidResult(message: string): AttemptResult {
  return { kind: 'failure', failure: failureOf('RESULT_INVALID', message) };
}
