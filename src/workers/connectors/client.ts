/**
 * The executor of declared tools of the kind `dynamic` (C21): hands each attempt over to an outside client, and waits for its word.
 * Who holds the attempt, with its fence, limits and cancellation, is this worker; the client only runs it.
 */
import { type ClientAnswer, type ClientCall, clientError } from '../../shared/connectors/client-tool.ts';
import type { DeclaredToolOf } from '../../shared/connectors/declared-tool.ts';
import { PawlError, ToolError } from '../../shared/errors/failure.ts';
import type { ClientCalls, Seen } from '../../shared/store/connectors/client-calls.ts';
import { type ProbeAnswer, qualifiedName, type ToolContext, type ToolResult } from '../../shared/tools/tool.ts';
import type { Executable } from './declared-tools.ts';

type ClientToolRecord = Pick<DeclaredToolOf<'dynamic'>, 'namespace' | 'name' | 'effects' | 'timeoutMs' | 'routing'>;

/** News may be lost: whoever waits looks by itself now and then. */
const LOOK_MS = 2_000;
/** Reasons for which this worker lets go of an attempt that another one takes on, client and all. */
const PASSED_ON: readonly unknown[] = ['LEASE_LOST', 'DRAINED'];

export class DynamicCalls {
  readonly #clientCalls: Pick<ClientCalls, 'published' | 'look' | 'withdraw'>;
  readonly #waiting = new Map<string, () => void>();

  constructor(clientCalls: Pick<ClientCalls, 'published' | 'look' | 'withdraw'>) {
    this.#clientCalls = clientCalls;
  }

  /** Something became of a call. */
  heard(callId: string): void {
    this.#waiting.get(callId)?.();
  }

  /** What a declared tool does when it is called. */
  executable(spec: ClientToolRecord): Executable {
    const tool = qualifiedName(spec);
    /** Attempts that are to take on what their probe found. */
    const found = new Set<string>();
    const attemptOf = ({ callId, fence }: ToolContext) => `${callId} ${fence}`;
    return {
      limit: { name: `dynamic:${tool}`, concurrency: spec.routing.concurrency },
      run: async (params, ctx) => {
        const call = callFor(spec, params, ctx);
        const published = await this.#clientCalls.published(call, found.delete(attemptOf(ctx)));
        if (published === 'no-client') throw nobody(tool);
        return this.#result(call, ctx, (seen) => {
          switch (seen.state) {
            case 'answered':
              return resultOf(seen.answer);
            case 'no-client':
              throw nobody(tool);
            default:
              throw lost(spec);
          }
        });
      },
      // Asked of a `once` tool whose worker died: the client may still be at it, or have done it.
      probe: async (params, ctx) => {
        const call = callFor(spec, params, ctx);
        return this.#result<ProbeAnswer<unknown>>(call, ctx, (seen) => {
          if (seen.state === 'answered' && seen.answer.kind === 'result')
            return { state: 'done', result: seen.answer.result };
          if (seen.state === 'answered') found.add(attemptOf(ctx));
          return { state: seen.state === 'answered' || seen.state === 'no-client' ? 'not-done' : 'unknown' };
        });
      },
    };
  }

  /** Waits until the call waits for no client any more. When the attempt is ended first, the call is withdrawn. */
  async #result<T>(call: ClientCall, ctx: ToolContext, conclude: (seen: Seen) => T): Promise<T> {
    let told = '';
    for (;;) {
      // Listening begins before looking, so that nothing falls between the two.
      const broadcast = this.#listen(call.callId, ctx.signal);
      try {
        if (ctx.signal.aborted) return conclude(await this.#withdrawn(call, ctx.signal));
        const seen = await this.#clientCalls.look(call);
        if (seen.state !== 'waiting' && seen.state !== 'taken') return conclude(seen);
        if (seen.state === 'taken' && seen.progress !== told) {
          told = seen.progress;
          report(told, ctx);
        }
        await broadcast.within(seen.state === 'taken' ? Math.min(seen.leaseLeftMs + 1, LOOK_MS) : LOOK_MS);
      } finally {
        broadcast.stop();
      }
    }
  }

  /** A client that has answered already has answered. Throws the signal's reason, or that no client has seen the call. */
  async #withdrawn(call: ClientCall, signal: AbortSignal): Promise<Seen> {
    const reason = signal.reason as Error;
    if (reason instanceof PawlError && PASSED_ON.includes(reason.code)) throw reason;
    const withdrawn = await this.#clientCalls.withdraw(call).catch(() => undefined);
    if (withdrawn?.state === 'answered') return withdrawn;
    if (withdrawn?.state !== 'untouched') throw reason;
    throw new ToolError(`No client took the call: ${reason.message}`, { code: 'CLIENT_GONE', nothingHappened: true });
  }

  #listen(callId: string, signal: AbortSignal) {
    const { promise, resolve } = Promise.withResolvers<void>();
    const wake = () => resolve();
    let timer: NodeJS.Timeout | undefined;
    this.#waiting.set(callId, wake);
    signal.addEventListener('abort', wake, { once: true });
    return {
      within: (limitMs: number): Promise<void> => {
        timer = setTimeout(wake, limitMs);
        if (signal.aborted) wake();
        return promise;
      },
      stop: (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', wake);
        if (this.#waiting.get(callId) === wake) this.#waiting.delete(callId);
      },
    };
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
    ...(agentId === undefined ? {} : { agentId }),
    ...(tenantId === undefined ? {} : { tenantId }),
    ...(turnId === undefined ? {} : { turnId }),
    idempotencyKey,
    ...(deadlineAtMs === undefined ? {} : { deadlineAtMs }),
    timeoutMs,
    ...(traceparent === undefined ? {} : { traceparent }),
  };
}

function resultOf(answer: ClientAnswer): ToolResult<unknown> {
  if (answer.kind === 'failure') throw clientError(answer.failure);
  return answer.result;
}

/** What a client reports is passed on where it is a report: a wrong one is no fault of the call. */
function report(told: string, ctx: ToolContext): void {
  try {
    ctx.progress(JSON.parse(told));
  } catch {}
}

function nobody(tool: string): PawlError {
  return new PawlError('CLIENT_GONE', `No client serves ${tool} now.`);
}

/** DESIGN, decision 5: what a client began and left no word about is in doubt. */
function lost({ name, effects }: ClientToolRecord): PawlError {
  const what = `The client that ran ${name} left before it answered`;
  return effects === 'once'
    ? new PawlError('OUTCOME_UNKNOWN', `${what}: the effect may have happened.`)
    : new PawlError('CLIENT_LOST', `${what}.`);
}
