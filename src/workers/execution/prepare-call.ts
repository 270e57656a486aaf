/**
 * Makes an attempt ready to run: its tool, permission, parameters and context, all from this worker's own registry and records. Nothing
 * in the job is trusted.
 */
import { isNativeError } from 'node:util/types';
import { isHarmless } from '../../shared/calls/call-state.ts';
import { type CallOf, compensatedCallId } from '../../shared/calls/compensation.ts';
import { classify } from '../../shared/errors/classify-error.ts';
import { type Failure, failureOf, PawlError } from '../../shared/errors/failure.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { Schedule } from '../../shared/util/time.ts';
import { type Attempt, remainingMs, timeLimitMs } from '../attempt/attempt-state.ts';
import type { PreparedContext } from '../context/tool-context.ts';
import { compensatingTool } from './compensation.ts';
import type { CallPermission, CallPermits } from './permit-call.ts';
import type { AttemptOptions } from './run-tool.ts';
import { hasDrifted } from './version-check.ts';

/** An attempt before its hooks, which may rewrite its parameters within the permission. */
export interface PreparedOptions extends AttemptOptions {
  readonly permission: Omit<CallPermission, 'escalated'>;
}

/** An attempt that is ready to run, or the reason why its call ends before. */
export type Prepared =
  | { readonly options: PreparedOptions }
  | { readonly failure: Failure; readonly status: 'error' | 'timeout' };

export interface PreparationDeps {
  readonly permits: Pick<CallPermits, 'permit'>;
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  contextFor(attempt: Attempt, session: SessionRecord, escalated: boolean): Promise<PreparedContext>;
  readonly callOf?: CallOf | undefined;
  readonly log: Logger;
  readonly schedule?: Schedule | undefined;
}

export class Preparation {
  readonly #deps: PreparationDeps;

  constructor(deps: PreparationDeps) {
    this.#deps = deps;
  }

  /** Throws `BACKEND_UNAVAILABLE` when it cannot find out whether the call may run. */
  async prepare(attempt: Attempt): Promise<Prepared> {
    const remaining = remainingMs(attempt);
    if (remaining !== undefined && remaining <= 0)
      return { failure: failureOf('DEADLINE_EXCEEDED'), status: 'timeout' };
    if (attempt.unreadable !== undefined) return { failure: unreadableFailure(attempt), status: 'error' };
    try {
      return { options: await this.#options(attempt, remaining) };
    } catch (error) {
      const failure = refusalFailure(error);
      if (failure.code === 'BACKEND_UNAVAILABLE') throw error;
      return { failure, status: 'error' };
    }
  }

  async #options(attempt: Attempt, remaining: number | undefined): Promise<PreparedOptions> {
    const { permits, sessionOf, callOf, log, schedule } = this.#deps;
    const { envelope, started, registered, running } = attempt;
    const session = await sessionOf(envelope.target.sessionKey);
    if (session === undefined) throw new PawlError('UNKNOWN_SESSION');
    // The worker checks the permission again: a producer's check is not enough.
    const permission = await permits.permit(attempt, session);
    const { params, escalated } = permission;
    const issues = await registered.validate(params);
    if (issues.length > 0) {
      const code = hasDrifted(started.request, registered) ? 'DEFINITION_CHANGED' : 'INVALID_PARAMS';
      throw new PawlError(code, undefined, { issues });
    }
    const { context, flushProgress } = await this.#deps.contextFor(attempt, session, escalated);
    const undone = compensatedCallId(envelope);
    const { tool, validateOutput } =
      undone === undefined ? registered : await compensatingTool(attempt, undone, callOf);
    return {
      tool,
      params: tool.parse(params),
      permission,
      context,
      flushProgress,
      running,
      timeoutMs: timeLimitMs(attempt, tool),
      remainingMs: remaining,
      policy: attempt.retry,
      validateOutput,
      log,
      ...(schedule !== undefined && { schedule }),
    };
  }
}

/** Without its parameters a call cannot be run, and a lost attempt of it cannot be probed: an effect of that attempt stays unknown. */
function unreadableFailure({ started, tool, unreadable }: Attempt): Failure {
  const isKnown = !started.recovered || isHarmless(tool.effects);
  return isKnown && unreadable !== undefined ? unreadable : failureOf('OUTCOME_UNKNOWN');
}

/** The failure of a call that was refused before its tool ran. */
export function refusalFailure(error: unknown): Failure {
  const failure = classify(error);
  return isNativeError(error) && error instanceof PawlError ? failure : { ...failure, nothingHappened: true };
}
