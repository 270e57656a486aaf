/**
 * An attempt that has begun: what its steps share, and what follows from it.
 */
import { type AttemptRecord, isInDoubt } from '../../shared/calls/call-state.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Outcome } from '../../shared/calls/outcome.ts';
import type { ToolPolicy } from '../../shared/config/config.ts';
import type { ReliabilityModes } from '../../shared/config/switches.ts';
import { type Failure, PawlError } from '../../shared/errors/failure.ts';
import type { RetryPolicy } from '../../shared/retries/retry.ts';
import type { RetryAllowance } from '../../shared/retries/retry-budget.ts';
import type { JsonSchema } from '../../shared/schema/json-schema.ts';
import { type Validator, validatorOf } from '../../shared/schema/schema.ts';
import type { StartedAttempt } from '../../shared/store/calls/begin-attempt.ts';
import { publishedTool } from '../../shared/store/fleet/catalogue.ts';
import type { FleetLimit } from '../../shared/store/limits/concurrency-limits.ts';
import { callOfJob } from '../../shared/store/queues/jobs.ts';
import { namingTool } from '../../shared/tools/define-tool.ts';
import { type AnyTool, qualifiedName } from '../../shared/tools/tool.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { CircuitHold } from './circuit-hold.ts';
import type { RunningAttempt } from './running-attempts.ts';
import type { AttemptTrace } from './traces.ts';

/** A tool as this worker runs it. */
export interface RegisteredTool {
  readonly tool: AnyTool;
  readonly validate: Validator;
  readonly validateOutput: Validator | undefined;
  /** Digest of the tool as it is offered. */
  readonly definition: string;
  /** What of the fleet's limits its calls count against. */
  readonly limit?: FleetLimit;
  /** It comes from the registry and may change at any time. */
  readonly declared?: true;
}

/**
 * Whether an attempt that left no record can be asked for. Of `once` tools only those that run outside of the workers: what they
 * do goes on when a worker dies.
 */
export function supportsProbe({ tool, declared }: RegisteredTool): boolean {
  return tool.probe !== undefined && (tool.effects === 'probe' || (tool.effects === 'once' && declared === true));
}

/**
 * Whether the attempt before this one left open whether it had its effect, and its tool can say. One of an earlier life of the call is
 * not asked about: somebody said that it may run again.
 */
export function needsProbe({ registered, started }: Pick<Attempt, 'registered' | 'started'>): boolean {
  const last = started.earlier.at(-1);
  if (last === undefined || registered.tool.effects !== 'probe') return false;
  return (last.inDoubt === true || last.status === 'lost') && last.startedAtMs >= started.firstStartedAtMs;
}

/** Tools under their qualified names. Throws `CONFIGURATION` for two of one name, and for a schema that cannot be compiled. */
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
  return namingTool(tool.name, () => ({
    tool,
    validate: compiledOnce(inputSchema),
    validateOutput: outputSchema === undefined ? undefined : compiledOnce(outputSchema),
    definition,
  }));
}

const compiled = new WeakMap<JsonSchema, Validator>();

/** However many workers and runners of a process offer the tool. */
function compiledOnce(schema: JsonSchema): Validator {
  const known = compiled.get(schema) ?? validatorOf(schema);
  compiled.set(schema, known);
  return known;
}

export interface Attempt {
  readonly callId: string;
  /** Of the call's job. */
  readonly generation: string;
  readonly running: RunningAttempt;
  readonly started: StartedAttempt;
  readonly envelope: ToolCallEnvelope;
  /** Why its parameters, which are kept apart, could not be read. */
  readonly unreadable?: Failure;
  readonly registered: RegisteredTool;
  readonly policy: ToolPolicy;
  /** What of the reliability layer works for this attempt. */
  readonly modes: ReliabilityModes;
  readonly retry: RetryPolicy;
  readonly allowance: RetryAllowance;
  readonly circuit: CircuitHold;
  /** 1 for the first; lost attempts count. */
  readonly number: number;
  readonly workerId: string;
  readonly clock: Clock;
  readonly beganMonotonicMs: number;
  /** Where traces are on. */
  readonly trace?: AttemptTrace;
}

/** The parameters that run. */
export function paramsOf({
  running,
  envelope,
}: Pick<Attempt, 'running' | 'envelope'>): Readonly<Record<string, unknown>> {
  return running.params ?? envelope.payload.params;
}

/** The call's own parameters, and those that run: what is secret in either is said nowhere (R31). */
export function allParams({ running, envelope }: Pick<Attempt, 'running' | 'envelope'>): unknown {
  const { params } = envelope.payload;
  return running.params === undefined ? params : [params, running.params];
}

/** Redis' clock as it was at the start, carried on by this process's monotonic one. */
export function nowMs({ started, clock, beganMonotonicMs }: Attempt): number {
  return Math.round(started.nowMs + clock.monotonic() - beganMonotonicMs);
}

/** How long the call was in its queue before this attempt, its first: a generation is named by when it was queued. */
export function waitedMs({ running, started }: Attempt): number {
  return Math.max(0, started.nowMs - Number(callOfJob(running.jobId).generation));
}

/** How long the attempt may take; a caller may give it more time than its tool says, and none more than the operator. */
export function timeLimitMs({ envelope, policy }: Attempt, tool: { readonly timeoutMs: number }): number {
  const allowedMs = policy.timeoutMs ?? Number.POSITIVE_INFINITY;
  return Math.min(envelope.payload.callHints?.timeoutMs ?? policy.timeoutMs ?? tool.timeoutMs, allowedMs);
}

/** When nobody wants the call's result any more. Whoever let it run again, which was in doubt, wants it however late that is. */
export function deadlineOf({ envelope, started }: Pick<Attempt, 'envelope' | 'started'>): number | undefined {
  return started.resolution === undefined ? envelope.control.deadlineAtMs : undefined;
}

/** Milliseconds until the call's deadline; undefined when it has none. */
export function remainingMs(attempt: Attempt): number | undefined {
  const deadlineAtMs = deadlineOf(attempt);
  return deadlineAtMs === undefined ? undefined : deadlineAtMs - nowMs(attempt);
}

/** The attempts of the call with this one at the end. */
export function attemptsWith(attempt: Attempt, failure: Failure | undefined, delayMs?: number): AttemptRecord[] {
  const { vote } = attempt.running;
  const { started, registered, number, workerId } = attempt;
  const record: AttemptRecord = {
    attempt: number,
    fence: started.fence,
    worker: workerId,
    startedAtMs: started.nowMs,
    finishedAtMs: nowMs(attempt),
    status: failure === undefined ? 'success' : 'error',
    retriable: failure?.retriable ?? false,
    ...(failure === undefined ? {} : { errorCode: failure.code }),
    ...(failure !== undefined && isInDoubt(registered.tool.effects, failure) ? { inDoubt: true } : {}),
    ...(delayMs === undefined ? {} : { delayMs }),
    ...(vote === undefined ? {} : { vote }),
    ...(attempt.trace === undefined ? {} : { traceparent: attempt.trace.traceparent }),
  };
  return [...started.earlier, record];
}

export function outcomeBase(attempt: Attempt): Pick<Outcome, 'toolName' | 'durationMs' | 'retriedBy'> {
  const { envelope, started } = attempt;
  return {
    toolName: envelope.toolName,
    durationMs: nowMs(attempt) - started.firstStartedAtMs,
    ...retriedBy(started.earlier),
  };
}

/** R7: what the attempts before the last one died of. */
export function retriedBy(earlier: readonly AttemptRecord[]): Pick<Outcome, 'retriedBy'> {
  // An attempt that left its vote died of nothing.
  const failed = earlier.filter(({ vote }) => vote === undefined);
  if (failed.length === 0) return {};
  return {
    retriedBy: failed.map((attempt) => ({
      attempt: attempt.attempt,
      delayMs: attempt.delayMs ?? 0,
      reasonCode: attempt.errorCode ?? 'LEASE_LOST',
      latencyMs: attempt.finishedAtMs - attempt.startedAtMs,
    })),
  };
}
