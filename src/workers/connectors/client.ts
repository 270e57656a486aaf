/**
 * Runs client-executed tools, the declared tools of the kind `dynamic`. It passes each attempt to an outside client
 * and waits for the answer. This worker holds the attempt with its fence, limits and cancellation; the client only
 * executes it.
 */
import { type ClientCall, clientError } from '../../shared/connectors/client-tool.ts';
import type { DeclaredToolOf } from '../../shared/connectors/declared-tool.ts';
import { PawlError, ToolError } from '../../shared/errors/failure.ts';
import type { ClientCallState, ClientCalls } from '../../shared/store/connectors/client-calls.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import type { ToolContext } from '../../shared/tools/tool-context.ts';
import type { ProbeAnswer } from '../../shared/tools/tool-result.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { NamedWaits } from '../../shared/util/named-waits.ts';
import type { Executable } from './declared-tools.ts';

type ClientToolRecord = Pick<DeclaredToolOf<'dynamic'>, 'namespace' | 'name' | 'effects' | 'timeoutMs' | 'routing'>;

/** A broadcast may be lost, so a waiting call also reads the record at this interval. */
const POLL_MS = 2_000;
/** Reasons for which this worker leaves an attempt to another worker; the client keeps working on it. */
const HANDOVER_CODES: readonly unknown[] = ['LEASE_LOST', 'DRAINED'];

export class ClientToolCalls {
  readonly #clientCalls: Pick<ClientCalls, 'published' | 'read' | 'withdraw'>;
  readonly #waits = new NamedWaits();

  constructor(clientCalls: Pick<ClientCalls, 'published' | 'read' | 'withdraw'>) {
    this.#clientCalls = clientCalls;
  }

  /** Wakes the waiters of a call whose record has changed. */
  notify(callId: string): void {
    this.#waits.notify(callId);
  }

  /** The functions of a declared tool of this kind. */
  executable(record: ClientToolRecord): Executable {
    const tool = qualifiedName(record);
    /** Calls whose probe found an attempt that the next run continues. */
    const probedAttempts = new Set<string>();
    const attemptOf = ({ callId, fence }: ToolContext) => `${callId} ${fence}`;
    return {
      limit: { name: `dynamic:${tool}`, concurrency: record.routing.concurrency },
      run: async (params, ctx) => {
        const call = callFor(record, params, ctx);
        const outcome = await this.#clientCalls.published(call, probedAttempts.delete(attemptOf(ctx)));
        if (outcome === 'no-client') throw noClientError(tool);
        return this.#result(call, ctx, (callState) => {
          switch (callState.state) {
            case 'answered':
              if (callState.answer.kind === 'failure') throw clientError(callState.answer.failure);
              return callState.answer.result;
            case 'no-client':
              throw noClientError(tool);
            default:
              throw clientLostError(record);
          }
        });
      },
      // The probe of a `once` tool whose worker died: the client may still be working on it, or have finished.
      probe: async (params, ctx) => {
        const call = callFor(record, params, ctx);
        return this.#result<ProbeAnswer<unknown>>(call, ctx, (callState) => {
          if (callState.state === 'answered' && callState.answer.kind === 'result')
            return { state: 'done', result: callState.answer.result };
          if (callState.state === 'answered') probedAttempts.add(attemptOf(ctx));
          return { state: callState.state === 'answered' || callState.state === 'no-client' ? 'not-done' : 'unknown' };
        });
      },
    };
  }

  /** Waits until a client has answered or is lost. If the attempt ends first, the call is withdrawn. */
  async #result<T>(call: ClientCall, ctx: ToolContext, conclude: (callState: ClientCallState) => T): Promise<T> {
    let lastReport = '';
    for (;;) {
      // Subscribing before reading ensures that no change is missed in between.
      const change = this.#waits.listen([call.callId], ctx.signal);
      try {
        if (ctx.signal.aborted) return conclude(await this.#withdraw(call, ctx.signal));
        const callState = await this.#clientCalls.read(call);
        if (callState.state !== 'waiting' && callState.state !== 'taken') return conclude(callState);
        if (callState.state === 'taken' && callState.progress !== lastReport) {
          lastReport = callState.progress;
          report(lastReport, ctx);
        }
        await change.within(callState.state === 'taken' ? Math.min(callState.remainingLeaseMs + 1, POLL_MS) : POLL_MS);
      } finally {
        change.stop();
      }
    }
  }

  /** Withdraws the call; an answer that has already come stays valid. Throws the signal's reason, or that no client took the call. */
  async #withdraw(call: ClientCall, signal: AbortSignal): Promise<ClientCallState> {
    const reason = signal.reason as Error;
    if (reason instanceof PawlError && HANDOVER_CODES.includes(reason.code)) throw reason;
    const withdrawn = await this.#clientCalls.withdraw(call).catch(() => undefined);
    if (withdrawn?.state === 'answered') return withdrawn;
    if (withdrawn?.state !== 'untouched') throw reason;
    throw new ToolError(`No client took the call: ${reason.message}`, { code: 'CLIENT_GONE', nothingHappened: true });
  }
}

function callFor(
  { namespace, name, timeoutMs }: ClientToolRecord,
  params: Readonly<Record<string, unknown>>,
  ctx: ToolContext,
): ClientCall {
  const { callId, fence, attempt, sessionKey, actorId, agentId, tenantId, turnId, idempotencyKey, deadlineAtMs } = ctx;
  const { traceparent } = ctx.trace;
  return {
    callId,
    fence,
    tool: qualifiedName({ namespace, name }),
    arguments: params,
    attempt,
    sessionKey,
    actorId,
    ...defined({ agentId, tenantId, turnId }),
    idempotencyKey,
    ...(deadlineAtMs !== undefined && { deadlineAtMs }),
    timeoutMs,
    ...(traceparent !== undefined && { traceparent }),
  };
}

/** Forwards a client's progress report. An invalid report must not fail the call. */
function report(text: string, ctx: ToolContext): void {
  try {
    ctx.progress(JSON.parse(text));
  } catch {}
}

function noClientError(tool: string): PawlError {
  return new PawlError('CLIENT_GONE', `No client serves ${tool} now.`);
}

/** A client took the call and never answered, so the outcome of a tool with effects is unknown. */
function clientLostError({ name, effects }: ClientToolRecord): PawlError {
  const message = `The client that ran ${name} left before it answered`;
  return effects === 'once'
    ? new PawlError('OUTCOME_UNKNOWN', `${message}.`)
    : new PawlError('CLIENT_LOST', `${message}.`);
}
