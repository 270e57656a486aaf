/** The last step of a submission: it waits for the result of a claimed call, or replays the outcome of a finished one. */
import type { ToolCallEnvelope, ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { envelopeOf, isTainted } from '../../shared/calls/outcome.ts';
import type { FinishedCall } from '../../shared/store/calls/finished-call.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { IdentifiedCall } from './checked-call.ts';
import type { AwaitedCall } from './claim-call.ts';
import { type DeadlineDeps, withDeadline } from './deadline.ts';
import type { ResultWaiters } from './result-waiters.ts';
import type { DispatchEvent, Submission } from './submission.ts';
import type { CallTraces } from './traces.ts';

export interface AwaitDeps {
  readonly results: Pick<ResultWaiters, 'markFinished'>;
  readonly deadlines: DeadlineDeps;
  readonly traces?: Pick<CallTraces, 'callerLeft'> | undefined;
  /** Records that a session has seen text from outside; resolves when policy applies it to the next call. */
  taint?(sessionKey: string, source: string): Promise<void>;
  onEvent(event: DispatchEvent): void;
}

export class ResultAwaiter {
  readonly #deps: AwaitDeps;

  constructor(deps: AwaitDeps) {
    this.#deps = deps;
  }

  /** The submission of a call that is queued, or runs. */
  pending({ envelope, tool }: IdentifiedCall, { callId, waiting, joinedAgeMs }: AwaitedCall): Submission {
    const { requestId, toolName } = envelope;
    const cache = joinedAgeMs === undefined ? {} : { cache: { matchedOn: 'inflight' as const, ageMs: joinedAgeMs } };
    const settled = waiting.outcome.then((outcome) => envelopeOf(outcome, { requestId, toolName, callId, ...cache }));
    const isOwn = joinedAgeMs === undefined;
    const stopWaiting = waiting.stop;
    const inTime = withDeadline(this.#deps.deadlines, { envelope, tool, callId, settled, stopWaiting, isOwn });
    const result = inTime.then(async (ended) => {
      await this.#finish(envelope, tool, ended);
      return ended;
    });
    // A rejection must not end the process of a caller that reads the result later.
    result.catch(() => {});
    const stop = () => {
      waiting.stop();
      this.#deps.traces?.callerLeft(envelope);
    };
    const pending = { kind: 'pending', callId, requestId, result, stop } as const;
    return isOwn ? pending : { ...pending, merged: true };
  }

  /** The submission of a call whose outcome is in Redis already. */
  async replay({ envelope, tool }: IdentifiedCall, { callId, outcome, ageMs }: FinishedCall): Promise<Submission> {
    this.#deps.results.markFinished(callId);
    const { requestId, toolName } = envelope;
    const result = envelopeOf(outcome, { requestId, toolName, callId, cache: { matchedOn: 'completed', ageMs } });
    await this.#finish(envelope, tool, result);
    return { kind: 'answered', callId, result };
  }

  /**
   * Runs before the caller has the result. The worker has marked the session that made the call; this session may be another one that
   * gets the same result, and this process may hold an older record of its own session.
   */
  async #finish(envelope: ToolCallEnvelope, tool: ResolvedTool, result: ToolResultEnvelope): Promise<void> {
    this.#deps.onEvent({ type: 'ended', envelope, published: tool, result });
    if (isTainted(result, tool)) await this.#deps.taint?.(envelope.target.sessionKey, qualifiedName(tool));
  }
}
