/** `pawl call`: one call, from the parameters on the command line to the result on standard output. */
import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import type { CallOptions } from '../../producer/calls/call-envelope.ts';
import type { Submission } from '../../producer/calls/submission.ts';
import type { Cancellation, Pawl } from '../../producer/client.ts';
import type { Session } from '../../producer/sessions/session.ts';
import type { DedupeMode, ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { isDelayed } from '../../shared/calls/start-time.ts';
import { parseToolName } from '../../shared/connectors/declared-tool.ts';
import { shortName, type Tier, type ToolReference } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { type CliContext, print, say, userName, withPawl } from '../context.ts';
import { EXIT_CODES, exitCodeOfResult } from '../exit-codes.ts';
import { readParams } from '../params.ts';
import { duration, moment, outputLines, prettyJson } from '../print.ts';
import { askAtConsole } from './ask-at-console.ts';
import { type LaterOptions, startOptions, submitLater } from './call-later.ts';
import { resolutionSteps } from './call-story.ts';

interface CallCommandOptions extends LaterOptions {
  readonly params: string;
  readonly session?: string;
  readonly key?: string;
  readonly timeout?: number;
  readonly namespace?: string;
  readonly dedupe?: DedupeMode;
  readonly turn?: string;
  readonly tag?: readonly string[];
  readonly callback?: string;
}

/** Without `--timeout`, a call without a compatible worker waits this long for one. */
const NO_WORKER_MS = 60_000;
/** The interval at which the command checks for a worker that can run the call. */
const POLL_MS = 5_000;
const MAX_SESSION_KEY = 200;
/** Approvals are asked for at this terminal. Other approvers find the request in the list. */
const CONSOLE = { kind: 'console' } as const;

/** The tool that the argument and `--namespace` name. Throws `CONTRACT_INVALID`. */
export function toolReference(tool: string, namespace: string | undefined): ToolReference {
  return namespace === undefined ? parseToolName(tool) : { namespace, name: tool };
}

export async function runCall(context: CliContext, toolName: string, options: CallCommandOptions): Promise<number> {
  const tool = toolReference(toolName, options.namespace);
  const params = await readParams(context, options.params);
  return withPawl(context, async (pawl) => {
    const start = startOptions(options);
    const isLater = isDelayed(start);
    const hasWorker = isLater || (await checkForWorker(context, pawl, tool, options));
    const session = await openSession(context, pawl, options.session);
    const callOptions: CallOptions = {
      namespace: tool.namespace,
      ...defined({ idempotencyKey: options.key, dedupeMode: options.dedupe, turnId: options.turn }),
      ...defined({ requestTags: options.tag, callbackUrl: options.callback }),
      ...start,
      ...(options.timeout !== undefined
        ? { timeoutMs: options.timeout }
        : hasWorker
          ? {}
          : { deadlineAtMs: pawl.backend.clock.now() + NO_WORKER_MS }),
    };
    const submit = () => session.submit(tool.name, params, callOptions);
    if (isLater) {
      const result = await submitLater(context, pawl, session, submit);
      return result === undefined ? EXIT_CODES.success.code : showResult(context, tool, result);
    }
    if (context.err.isTTY) showProgress(context, session);
    const stopPolling = reportWorkerLoss(context, pawl, tool);
    const result = await submitAndWait(context, pawl, session, submit).finally(stopPolling);
    return result === 'detached' ? EXIT_CODES.failed.code : showResult(context, tool, result);
  });
}

/** Explains how to start a worker if none runs the tool. */
async function checkForWorker(
  context: CliContext,
  pawl: Pawl,
  tool: ToolReference,
  { timeout }: CallCommandOptions,
): Promise<boolean> {
  const { isPublished, tier, workers } = await findPublishers(pawl, tool);
  const limit = duration(timeout ?? NO_WORKER_MS);
  if (isPublished) return true;
  if (tier !== undefined)
    say(
      context,
      `no worker that has ${shortName(tool)} is running: ${startHint(tier)}; waiting for one, at most ${limit}`,
    );
  else if (workers.length === 0) say(context, `no worker is running: start one with 'pawl up' or 'pawl worker'`);
  return false;
}

/** Reports once that the last worker with the tool has ended while the call waits. */
function reportWorkerLoss(context: CliContext, pawl: Pawl, tool: ToolReference): () => void {
  let wasServed = false;
  const timer = setInterval(async () => {
    // While Redis is out of reach, the workers are not known.
    const publishers = await findPublishers(pawl, tool).catch(() => undefined);
    if (publishers === undefined) return;
    // A draining worker may still run the call.
    const isServed = publishers.isPublished || publishers.workers.some(({ draining }) => draining === true);
    if (wasServed && !isServed && publishers.tier !== undefined)
      say(
        context,
        `no worker that has ${shortName(tool)} is running any more: ${startHint(publishers.tier)}; Ctrl-C cancels the call`,
      );
    wasServed = isServed;
  }, POLL_MS);
  return () => clearInterval(timer);
}

async function findPublishers(pawl: Pawl, { namespace, name }: ToolReference) {
  const { tools, workers } = await pawl.catalogue();
  const published = tools.filter((tool) => tool.name === name && tool.namespace === namespace);
  return { isPublished: published.some((tool) => tool.workers > 0), tier: published[0]?.tier, workers };
}

function startHint(tier: Tier): string {
  return `start one with 'pawl up' or 'pawl worker --tiers ${tier}'`;
}

/**
 * The session of `--session`, opened if there is none. Without the option, calls from this folder share a session, so that a
 * `--key` means the same call next time.
 */
function openSession(context: CliContext, pawl: Pawl, requestedKey: string | undefined): Promise<Session> {
  const sessionKey = requestedKey ?? sessionOfFolder(context.cwd);
  const workspaceRoot = pawl.settings.workspaceRoot ?? context.cwd;
  return pawl.sessions.findOrOpen({ sessionKey, actorId: actorId(), workspaceRoot, channel: CONSOLE });
}

function sessionOfFolder(folder: string): string {
  const key = `${actorId()}@${hostname()}:${folder}`;
  if (key.length <= MAX_SESSION_KEY) return key;
  return `${actorId()}@${hostname()}:${createHash('sha256').update(folder).digest('hex').slice(0, 32)}`;
}

function actorId(): string {
  return startOf(userName() ?? 'anonymous', 64);
}

function showProgress(context: CliContext, session: Session): void {
  const { events } = session;
  events.on('queued', ({ callId }) => say(context, `call ${callId}`));
  events.on('progress', ({ progress, total, message }) => {
    const of = total === undefined ? '' : ` of ${total}`;
    say(context, `${progress}${of}${message === undefined ? '' : `: ${message}`}`);
  });
  events.on('pending', ({ expiresAtMs }) =>
    say(context, `waits for an outside system, until ${moment(expiresAtMs)} at most`),
  );
  events.on('retrying', ({ attempt, delayMs, reasonCode }) =>
    say(context, `attempt ${attempt} failed with ${reasonCode}; the next one comes in ${duration(delayMs)}`),
  );
}

/** Waits for the call's end, and asks for its approval if it needs one. The first Ctrl-C cancels the call, the second leaves it. */
async function submitAndWait(
  context: CliContext,
  pawl: Pawl,
  session: Session,
  submit: () => Promise<Submission>,
): Promise<ToolResultEnvelope | 'detached'> {
  const detached = Promise.withResolvers<'detached'>();
  const queuedCallId = Promise.withResolvers<string>();
  session.events.on('queued', ({ callId }) => queuedCallId.resolve(callId));
  const cancel = async () => {
    const callId = await queuedCallId.promise;
    say(context, `cancelling ${callId}; once more leaves it`);
    say(context, SETTLEMENT_SENTENCES[(await session.cancel(callId)).settlement]);
  };
  // Interrupts are counted here, because the prompt reports Ctrl-C itself and not as a signal.
  let interrupts = 0;
  const interrupt = () => {
    interrupts += 1;
    if (interrupts > 1) detached.resolve('detached');
    else cancel().catch((error: Error) => say(context, error.message));
  };
  const stopListening = context.onInterrupt(interrupt);
  const callEnd = new AbortController();
  session.events.on('approval-requested', ({ approvalId }) => {
    const questionOptions = { signal: callEnd.signal, interrupt };
    askAtConsole(context, pawl, approvalId, questionOptions).catch((error: Error) => say(context, error.message));
  });
  try {
    const pendingResult = submit().then((submission) => submission.result);
    const result = await Promise.race([pendingResult, detached.promise]);
    if (result === 'detached') say(context, `left; the call goes on: see 'pawl calls ls'`);
    // The promise that lost the race may still fail when the connection closes.
    pendingResult.catch(() => {});
    return result;
  } finally {
    callEnd.abort();
    stopListening();
  }
}

export const SETTLEMENT_SENTENCES = {
  'cancelled-before-start': 'cancelled before it started: nothing has happened',
  cancelled: 'cancelled',
  unsettled: 'cancelled while it ran: its effect may have happened',
  'too-late': 'too late: the call had ended already',
} as const satisfies Record<Cancellation['settlement'], string>;

function showResult(context: CliContext, tool: ToolReference, result: ToolResultEnvelope): number {
  if (context.json) print(context, prettyJson(result));
  else if (result.status === 'success') showOutput(context, result.output);
  else explain(context, tool, result);
  if (result.status === 'success' && result.cache !== undefined && context.err.isTTY)
    say(context, `the result of call ${result.callId} from ${duration(result.cache.ageMs)} ago`);
  return exitCodeOfResult(result);
}

function explain(
  context: CliContext,
  tool: ToolReference,
  result: Exclude<ToolResultEnvelope, { readonly status: 'success' }>,
): void {
  const { callId, cache } = result;
  const { code, message, issues = [], retryAfterMs } = result.error;
  say(context, `${shortName(tool)}: ${code}: ${message}`);
  // The message lists the issues already.
  if (issues.length === 0 && retryAfterMs !== undefined) say(context, `try again in ${duration(retryAfterMs)}`);
  if (code === 'SIGNATURE_INVALID') say(context, `'pawl doctor' says which processes hold other signing keys`);
  if (code === 'LOOP_DETECTED') say(context, 'or give an intended repetition a --key of its own');
  if (result.attempts > 1) say(context, `after ${plural(result.attempts, 'attempt')}`);
  const steps = callId === undefined ? [] : resolutionSteps(result.error, callId);
  // Without this line, a failure whose cause is mended looks as if it happened again.
  if (cache?.matchedOn === 'completed') {
    const next = steps.length === 0 ? '; another --key makes a new call' : '';
    say(context, `that was ${duration(cache.ageMs)} ago, and nothing ran now${next}`);
  }
  for (const line of steps) say(context, line);
}

function showOutput(
  context: CliContext,
  { content, metadata }: Extract<ToolResultEnvelope, { status: 'success' }>['output'],
): void {
  const display = metadata?.['display'];
  if (typeof display !== 'string') print(context, prettyJson(content));
  // Without a terminal the text is the tool's own, unchanged, and nothing but that.
  else if (!context.out.isTTY) context.out.write(`${display}\n`);
  else print(context, [display.replaceAll('\r\n', '\n'), ...outputLines(content)].join('\n'));
}
