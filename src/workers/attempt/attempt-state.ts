/** One attempt of a call: the data that its steps share, and values derived from it. */
import { type AttemptRecord, isInDoubt } from '../../shared/calls/call-state.ts';
import type { CompletionTerms } from '../../shared/calls/completion.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { type Outcome, retriedBy } from '../../shared/calls/outcome.ts';
import type { ReliabilityModes } from '../../shared/config/switches.ts';
import type { ToolPolicy } from '../../shared/config/tool-settings.ts';
import { type Failure, PawlError } from '../../shared/errors/failure.ts';
import type { NamedLimit } from '../../shared/limits/concurrency-limit.ts';
import type { RetryPolicy } from '../../shared/retries/retry.ts';
import type { RetryAllowance } from '../../shared/retries/retry-budget.ts';
import type { JsonSchema } from '../../shared/schema/json-schema.ts';
import { type Validator, validatorOf } from '../../shared/schema/validator.ts';
import type { StartedAttempt } from '../../shared/store/calls/begin-attempt.ts';
import { publishedTool } from '../../shared/store/fleet/catalogue.ts';
import { callOfJob } from '../../shared/store/queues/jobs.ts';
import { withToolName } from '../../shared/tools/define-tool.ts';
import { type AnyTool, qualifiedName } from '../../shared/tools/tool.ts';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { CircuitHold } from './circuit-hold.ts';
import type { RunningAttempt } from './running-attempts.ts';
import type { AttemptTrace } from './traces.ts';

/** A tool as this worker runs it. */
export interface RegisteredTool {
  readonly tool: AnyTool;
  readonly validate: Validator;
  readonly validateOutput: Validator | undefined;
  readonly definition: string;
  /** The limit of the fleet that its calls count against. */
  readonly limit?: NamedLimit;
  /** The tool comes from the registry and may change at any time. */
  readonly declared?: true;
}

/**
 * Whether the tool can be asked about an attempt that left no record. A `once` tool can only if it runs outside of the workers: its
 * work then goes on when a worker dies.
 */
export function supportsProbe({ tool, declared }: RegisteredTool): boolean {
  return tool.probe !== undefined && (tool.effects === 'probe' || (tool.effects === 'once' && declared === true));
}

/**
 * Whether the tool must be probed, because the previous attempt left its effect in doubt. An attempt before a redrive needs no probe:
 * an operator has decided that the call may run again.
 */
export function needsProbe({ tool, started }: Pick<Attempt, 'tool' | 'started'>): boolean {
  const previous = started.earlierAttempts.at(-1);
  if (previous === undefined || tool.effects !== 'probe') return false;
  return (previous.inDoubt === true || previous.status === 'lost') && previous.startedAtMs >= started.firstStartedAtMs;
}

/** Maps tools by their qualified names. Throws `CONFIGURATION` for two of one name, and for a schema that cannot be compiled. */
export function register(tools: readonly AnyTool[]): ReadonlyMap<string, RegisteredTool> {
  const registered = new Map<string, RegisteredTool>();
  for (const tool of tools) {
    const name = qualifiedName(tool);
    if (registered.has(name))
      throw new PawlError('CONFIGURATION', `Two tools are named ${name}; give one another name or namespace.`);
    registered.set(name, registeredTool(tool, publishedTool(tool, 0).definition));
  }
  return registered;
}

/** Throws `CONFIGURATION` for a schema that cannot be compiled. */
export function registeredTool(tool: AnyTool, definition: string): RegisteredTool {
  const { inputSchema, outputSchema } = tool;
  return withToolName(tool.name, () => ({
    tool,
    validate: compiledOnce(inputSchema),
    validateOutput: outputSchema === undefined ? undefined : compiledOnce(outputSchema),
    definition,
  }));
}

const compiled = new WeakMap<JsonSchema, Validator>();

/** A schema is compiled once, however many workers and runners of a process have the tool. */
function compiledOnce(schema: JsonSchema): Validator {
  return getOrInsert(compiled, schema, () => validatorOf(schema));
}

export interface Attempt {
  readonly callId: string;
  readonly generation: string;
  readonly envelope: ToolCallEnvelope;
  /** The failure to read large parameters, which are stored outside of the record. */
  readonly unreadable?: Failure;
  readonly tool: AnyTool;
  readonly registered: RegisteredTool;
  readonly policy: ToolPolicy;
  /** The answer to the command that began the attempt. */
  readonly started: StartedAttempt;
  /** The attempt in this process: its abort signal, its lease and its rewritten parameters. */
  readonly running: RunningAttempt;
  readonly modes: ReliabilityModes;
  readonly retry: RetryPolicy;
  readonly allowance: RetryAllowance;
  readonly circuit: CircuitHold;
  /** Counts from 1; lost attempts count as well. */
  readonly number: number;
  readonly workerId: string;
  readonly clock: Clock;
  readonly beganMonotonicMs: number;
  /** Absent while tracing is off. */
  readonly trace?: AttemptTrace;
}

/** The parameters that run: the call's own, or those that an approver or a hook rewrote. */
export function paramsOf({
  running,
  envelope,
}: Pick<Attempt, 'running' | 'envelope'>): Readonly<Record<string, unknown>> {
  return running.params ?? envelope.payload.params;
}

/** The call's own parameters and those that run. The secrets of both are redacted. */
export function allParams({ running, envelope }: Pick<Attempt, 'running' | 'envelope'>): unknown {
  const { params } = envelope.payload;
  return running.params === undefined ? params : [params, running.params];
}

/** The time on Redis' clock: read at the start, and advanced by this process's monotonic clock. */
export function nowMs({ started, clock, beganMonotonicMs }: Attempt): number {
  return Math.round(started.nowMs + clock.monotonic() - beganMonotonicMs);
}

/**
 * The time that a call spent in its queue before its first attempt. Its generation is the time at which it was queued; a delayed call
 * is queued from its start time on.
 */
export function waitedMs({ running, started }: Attempt): number {
  const queuedAtMs = Math.max(Number(callOfJob(running.jobId).generation), started.request.startAtMs ?? 0);
  return Math.max(0, started.nowMs - queuedAtMs);
}

/** The time limit of the attempt. A caller may extend the tool's own limit, but not beyond the operator's. */
export function timeLimitMs({ envelope, policy }: Attempt, tool: { readonly timeoutMs: number }): number {
  const allowedMs = policy.timeoutMs ?? Number.POSITIVE_INFINITY;
  return Math.min(envelope.payload.callHints?.timeoutMs ?? policy.timeoutMs ?? tool.timeoutMs, allowedMs);
}

/** The limits and the schema that a completion of the attempt's call must meet. */
export function termsOf({ tool, policy }: Pick<Attempt, 'tool' | 'policy'>): CompletionTerms {
  const shownBytes = policy.maxOutputBytes ?? tool.maxOutputBytes;
  return {
    ...(tool.outputSchema !== undefined && { outputSchema: tool.outputSchema }),
    maxResultBytes: policy.maxResultBytes ?? tool.maxResultBytes,
    ...(shownBytes !== undefined && { shownBytes }),
  };
}

/** The deadline of the call. A call that was resolved as `retry`, or redriven, has none. */
export function deadlineOf({
  envelope,
  started,
}: Pick<Attempt, 'envelope'> & { readonly started: Pick<Attempt['started'], 'resolution'> }): number | undefined {
  return started.resolution === undefined ? envelope.control.deadlineAtMs : undefined;
}

/** Milliseconds until the call's deadline; undefined when it has none. */
export function remainingMs(attempt: Attempt): number | undefined {
  const deadlineAtMs = deadlineOf(attempt);
  return deadlineAtMs === undefined ? undefined : deadlineAtMs - nowMs(attempt);
}

/** The attempts of the call, this one last. */
export function attemptsWith(attempt: Attempt, failure: Failure | undefined, delayMs?: number): AttemptRecord[] {
  const { vote } = attempt.running;
  const { started, tool, number, workerId } = attempt;
  const record: AttemptRecord = {
    attempt: number,
    fence: started.fence,
    worker: workerId,
    startedAtMs: started.nowMs,
    finishedAtMs: nowMs(attempt),
    status: failure === undefined ? 'success' : 'error',
    retriable: failure?.retriable ?? false,
    ...(failure !== undefined && { errorCode: failure.code }),
    ...(failure !== undefined && isInDoubt(tool.effects, failure) ? { inDoubt: true } : {}),
    ...(delayMs !== undefined && { delayMs }),
    ...(vote !== undefined && { vote }),
    ...(attempt.trace !== undefined && { traceparent: attempt.trace.traceparent }),
  };
  return [...started.earlierAttempts, record];
}

export function outcomeBase(attempt: Attempt): Pick<Outcome, 'toolName' | 'durationMs' | 'retriedBy'> {
  const { envelope, started } = attempt;
  return {
    toolName: envelope.toolName,
    durationMs: nowMs(attempt) - started.firstStartedAtMs,
    ...retriedBy(started.earlierAttempts),
  };
}
