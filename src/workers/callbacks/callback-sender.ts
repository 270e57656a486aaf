/**
 * Sends callbacks: a worker leases due callbacks and posts them. A slow or failing host gets few at a time, so that it does not delay
 * others. If the worker is lost, another one sends the callback when its lease ends, under the same ID.
 */
import { callbackBody, retryDelayMs, signedHeaders } from '../../shared/callbacks/callback.ts';
import { decodeOutcome, envelopeOf } from '../../shared/calls/outcome.ts';
import { classify } from '../../shared/errors/classify-error.ts';
import { clip, statusError } from '../../shared/errors/failure.ts';
import type { Signatures } from '../../shared/signing/signatures.ts';
import type {
  CallbackEnd,
  CallbackRecords,
  LeasedCallback,
  TakenCallbacks,
} from '../../shared/store/callbacks/callbacks.ts';
import { lacksRights } from '../../shared/store/redis/backend-error.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { Tier } from '../../shared/tools/tool.ts';
import { systemSchedule, uuidv7 } from '../../shared/util/time.ts';
import { withinMs } from '../../shared/util/wait.ts';
import type { Fetch } from '../context/network.ts';

interface CallbackSenderDeps {
  readonly callbacks: Pick<CallbackRecords, 'take' | 'finish'>;
  readonly signatures: Signatures;
  /** Through the guarded network. */
  readonly fetch: Fetch;
  readonly log: Logger;
  readonly random: () => number;
  partitions(): readonly Partition[];
  secretsOf(tenantId: string | undefined): Promise<readonly string[]>;
  /** Redis' clock. */
  now(): Promise<number>;
  onSent(state: CallbackEnd['state']): void;
  onError(error: Error): void;
}

const SEND_TIMEOUT_MS = 10_000;
/** Longer than one request can take. */
const LEASE_MS = 30_000;
const MAX_SENDING = 64;
/** The poll interval, in case the broadcast of a due callback was lost. */
const POLL_MS = 5_000;
/** A tier whose keys were refused is left to its own workers for this long. */
const DENIED_MS = 60_000;
const WAKE_WITHIN_MS = 25;
const CLOSE_MS = 1_000;
const GONE = 410;

type SendResult = Omit<CallbackEnd, 'delayMs'> & { readonly retryAfterMs?: number };

export class CallbackSender {
  readonly #deps: CallbackSenderDeps;
  readonly #sends = new Set<Promise<void>>();
  /** The tiers whose keys the Redis user may not use, as where each tier's workers have a user of their own. By the monotonic clock. */
  readonly #deniedAtMs = new Map<Tier, number>();
  #cancel: () => void = () => {};
  #dueAtMs = Number.POSITIVE_INFINITY;
  #polling: Promise<void> | undefined;
  #closed = false;
  readonly #stop = new AbortController();

  constructor(deps: CallbackSenderDeps) {
    this.#deps = deps;
    this.#pollIn(POLL_MS * deps.random());
  }

  /** Polls soon, because a callback may be due. All workers receive the broadcast, so each adds a random delay. */
  wake(): void {
    this.#pollIn(WAKE_WITHIN_MS * this.#deps.random());
  }

  /** Leases no more callbacks. Requests in flight have a moment to end; then other workers send those callbacks. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#cancel();
    const ended = Promise.all([this.#polling, ...this.#sends]);
    const limitMs = () => (this.#sends.size === 0 ? 0 : CLOSE_MS);
    await withinMs(ended, limitMs());
    this.#stop.abort();
    await withinMs(ended, limitMs());
  }

  #pollIn(delayMs: number): void {
    const atMs = performance.now() + delayMs;
    if (this.#closed || atMs >= this.#dueAtMs) return;
    this.#cancel();
    this.#dueAtMs = atMs;
    this.#cancel = systemSchedule(() => {
      this.#dueAtMs = Number.POSITIVE_INFINITY;
      if (this.#polling !== undefined) return this.#pollIn(WAKE_WITHIN_MS);
      this.#polling = this.#poll()
        .catch((error: Error) => {
          this.#deps.onError(error);
          return POLL_MS;
        })
        .then((nextInMs) => {
          this.#polling = undefined;
          this.#pollIn(nextInMs);
        });
    }, delayMs);
  }

  /** Leases and sends the due callbacks. Returns the delay of the next poll. */
  async #poll(): Promise<number> {
    const { partitions, random } = this.#deps;
    let nextInMs = POLL_MS * (0.5 + random() / 2);
    for (const partition of partitions()) {
      const capacity = MAX_SENDING - this.#sends.size;
      if (capacity <= 0 || this.#closed) break;
      const leased = await this.#take(partition, capacity);
      for (const callback of leased?.callbacks ?? []) this.#start(callback);
      if (leased?.nextInMs !== undefined) nextInMs = Math.min(nextInMs, Math.max(WAKE_WITHIN_MS, leased.nextInMs));
    }
    return nextInMs;
  }

  /** Undefined for a partition whose keys this Redis user may not use: the callbacks of the others are sent all the same. */
  async #take(partition: Partition, capacity: number): Promise<TakenCallbacks | undefined> {
    const deniedAtMs = this.#deniedAtMs.get(partition.tier);
    if (deniedAtMs !== undefined && performance.now() - deniedAtMs < DENIED_MS) return undefined;
    try {
      return await this.#deps.callbacks.take(partition, uuidv7(), LEASE_MS, capacity);
    } catch (error) {
      if (!lacksRights(error)) throw error;
      this.#deniedAtMs.set(partition.tier, performance.now());
      this.#deps.onError(error);
      return undefined;
    }
  }

  #start(callback: LeasedCallback): void {
    const sending = this.#send(callback)
      .catch((error: Error) => this.#deps.onError(error))
      .then(() => {
        this.#sends.delete(sending);
        this.wake();
      });
    this.#sends.add(sending);
  }

  async #send(callback: LeasedCallback): Promise<void> {
    const { callbacks, random, log, onSent } = this.#deps;
    const result = await this.#post(callback);
    const end = await this.#endOf(callback, result, random);
    if (!(await callbacks.finish(callback, end))) return;
    onSent(end.state);
    if (end.state === 'failed')
      log.warn(
        { event: 'callback_failed', callbackId: callback.id, callId: callback.callId, ...end.last },
        'a callback was given up; pawl callbacks replay sends it again',
      );
  }

  async #endOf(
    { attempts, sinceMs }: LeasedCallback,
    { retryAfterMs, ...end }: SendResult,
    random: () => number,
  ): Promise<CallbackEnd> {
    if (end.state !== 'failing') return end;
    // This worker stops, so another one sends the callback at once.
    if (this.#stop.signal.aborted) return { ...end, delayMs: 0 };
    const delayMs = retryDelayMs({ attempts, sinceMs, nowMs: await this.#deps.now() }, random, retryAfterMs);
    return delayMs === undefined ? { ...end, state: 'failed' } : { ...end, delayMs };
  }

  async #post(callback: LeasedCallback): Promise<SendResult> {
    const { fetch, secretsOf, now } = this.#deps;
    const { target } = callback;
    const body = this.#bodyOf(callback);
    if (target === undefined || body === undefined)
      return { state: 'failed', last: { error: 'The callback is not signed by this fleet.' } };
    const headers = signedHeaders(await secretsOf(target.tenantId), { id: callback.id, atMs: await now(), body });
    const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(SEND_TIMEOUT_MS)]);
    try {
      const response = await fetch(target.url, { method: 'POST', headers, body, redirect: 'manual', signal });
      response.body?.cancel().catch(() => {});
      return resultOf(response);
    } catch (error) {
      if (this.#stop.signal.aborted) return { state: 'failing', last: { error: 'its worker stopped' } };
      const { code, message } = classify(signal.aborted ? Object.assign(new Error(), { name: 'TimeoutError' }) : error);
      const last = { error: signal.aborted ? `no answer within ${SEND_TIMEOUT_MS} ms` : clip(message) };
      return { state: 'failing', last, ...(code === 'PERMISSION_DENIED' ? {} : { answered: false }) };
    }
  }

  /** The body of the request; undefined for an outcome that no worker of this fleet signed. */
  #bodyOf(callback: LeasedCallback): string | undefined {
    const { target, callId, callState, outcome: text, parts, signature, settledAtMs } = callback;
    if (target === undefined) return undefined;
    const isTooLarge = text === '';
    const [kind, signedText] = isTooLarge ? (['outcome-parts', parts] as const) : (['outcome', text] as const);
    if (!this.#deps.signatures.verify(kind, [callId, callState], signedText, signature)) return undefined;
    const status = callState === 'done' ? 'success' : 'error';
    if (isTooLarge) return callbackBody(target, { callId, settledAtMs, status, result: undefined });
    const { requestId, tool } = target;
    const result = envelopeOf(decodeOutcome(JSON.parse(text)), { requestId, callId, toolName: tool });
    return callbackBody(target, { callId, settledAtMs, status: result.status, result });
  }
}

/**
 * A redirect counts as a failure, because the caller has not named its target. A host that answers is up, whatever it answers: other
 * receivers may live on it.
 */
function resultOf(response: Response): SendResult {
  const { ok, status } = response;
  const last = { status };
  if (ok) return { state: 'delivered', last, answered: true };
  if (status === GONE) return { state: 'failed', last, answered: true };
  const { retryAfterMs } = classify(statusError(`HTTP ${status}`, response));
  return { state: 'failing', last, answered: true, ...(retryAfterMs !== undefined && { retryAfterMs }) };
}
