/**
 * Calls of client-executed tools, as the worker that holds the attempt and the client exchange them. A record for each call outlives both:
 *
 *   waiting    offered; no client has taken it   no-client  no client serves the tool, and the offer is removed
 *   taken      by a client, under its lease      lost       the lease ended, or the client left: its effect is unknown
 *   answered   by that client, once              withdrawn  the worker gave it up, and its client is notified
 *
 * Requests and answers are signed, each for its call and fence.
 */
import { type ClientAnswer, type ClientCall, MAX_CLIENT_TOOLS } from '../../connectors/client-tool.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';
import { signedMessage, verifiedMessage } from '../signing/signed-text.ts';

const joinScript = new Script(new URL('./client-join.lua', import.meta.url));
const nextScript = new Script(new URL('./client-next.lua', import.meta.url));
const leaveScript = new Script(new URL('./client-leave.lua', import.meta.url), [], 'once');
const offerScript = new Script(new URL('./client-call-offer.lua', import.meta.url));
const readScript = new Script(new URL('./client-call-read.lua', import.meta.url));
const withdrawScript = new Script(new URL('./client-call-withdraw.lua', import.meta.url), [], 'once');
const answerScript = new Script(new URL('./client-call-answer.lua', import.meta.url));

/** The lifetime of a record after its last read: longer than another worker needs to recover a dead worker's call. */
const RECORD_TTL_MS = 3_600_000;

/** The state as the worker reads it. An answer that no key of this fleet signed counts as `lost`. */
export type ClientCallState =
  | { readonly state: 'waiting' | 'no-client' | 'lost' | 'withdrawn' | 'unknown' }
  | { readonly state: 'taken'; readonly remainingLeaseMs: number; readonly progress: string }
  | { readonly state: 'answered'; readonly answer: ClientAnswer };

type WithdrawResult =
  | { readonly state: 'untouched' | 'taken' | 'gone' }
  | { readonly state: 'answered'; readonly answer: ClientAnswer };

/** `gone`: the client's lease is over. `superseded`: it has polled again meanwhile. */
type RenewResult =
  | { readonly kind: 'gone' | 'superseded' }
  | {
      readonly kind: 'renewed';
      readonly leaseMs: number;
      /** The calls that the client runs and that no worker waits for any more. */
      readonly cancelled: readonly string[];
      readonly call?: ClientCall;
    };

export class ClientCalls extends FleetRecords {
  // The worker's side

  /**
   * Offers a call to clients. `adoptFailure`: the failure of an earlier attempt counts for this one; otherwise the call is offered again.
   */
  async published(call: ClientCall, adoptFailure: boolean): Promise<'offered' | 'adopted' | 'no-client'> {
    const { callId, fence, tool } = call;
    const signed = signedMessage(this.signatures, `call ${callId} ${fence}`, call);
    const args = [callId, fence, tool, signed, adoptFailure ? '1' : '', RECORD_TTL_MS, this.channel];
    const [code] = await offerScript.run(this.redis, this.#callKeys(call), args);
    return code as 'offered' | 'adopted' | 'no-client';
  }

  async read(call: Pick<ClientCall, 'callId' | 'tool'>): Promise<ClientCallState> {
    const args = [call.callId, RECORD_TTL_MS, call.tool, this.channel];
    const [state, first, second] = await readScript.run(this.redis, this.#callKeys(call), args);
    if (state === 'taken') return { state, remainingLeaseMs: Number(first), progress: String(second) };
    if (state === 'answered') return this.#readAnswer(call.callId, Number(first), String(second)) ?? { state: 'lost' };
    return { state: state as 'waiting' | 'no-client' | 'lost' | 'withdrawn' | 'unknown' };
  }

  async withdraw(call: Pick<ClientCall, 'callId' | 'tool'>): Promise<WithdrawResult> {
    const args = [call.callId, call.tool, this.channel];
    const [state, fence, signed] = await withdrawScript.run(this.redis, this.#callKeys(call).slice(0, 2), args);
    if (state === 'answered') return this.#readAnswer(call.callId, Number(fence), String(signed)) ?? { state: 'gone' };
    return { state: state as 'untouched' | 'taken' | 'gone' };
  }

  #readAnswer(callId: string, fence: number, signed: string) {
    const answer = verifiedMessage<ClientAnswer>(this.signatures, `answer ${callId} ${fence}`, signed);
    return answer === undefined ? undefined : ({ state: 'answered', answer } as const);
  }

  // The client's side

  async join(clientId: string, tools: readonly string[], leaseMs: number): Promise<void> {
    const args = [clientId, this.keys.clients, leaseMs, RECORD_TTL_MS, ...tools.slice(0, MAX_CLIENT_TOOLS)];
    await joinScript.run(this.redis, [this.#client(clientId)], args);
  }

  /** The tools that a client serves; none when its lease has ended. */
  async toolsOf(clientId: string): Promise<readonly string[]> {
    return (await this.redis.hget(this.#client(clientId), 'tools'))?.split(' ') ?? [];
  }

  /** Renews the lease; with a poll, also takes the next call. */
  async next(
    clientId: string,
    running: readonly string[],
    poll?: { readonly id: string; readonly first: boolean },
  ): Promise<RenewResult> {
    for (;;) {
      const polled = [poll?.id ?? '', poll?.first === true ? '1' : ''];
      const args = [clientId, this.keys.clients, ...polled, RECORD_TTL_MS, ...running];
      const keys = [this.#client(clientId), this.#takenKey(clientId)];
      const [kind, leaseMs, cancelled, callId, fence, signed] = await nextScript.run(this.redis, keys, args);
      if (kind !== 'renewed') return { kind: kind as 'gone' | 'superseded' };
      const status = { kind, leaseMs: Number(leaseMs), cancelled: splitWords(String(cancelled)) } as const;
      if (callId === undefined) return status;
      const call = verifiedMessage<ClientCall>(this.signatures, `call ${callId} ${fence}`, String(signed));
      if (call !== undefined) return { ...status, call };
      // No key of this fleet signed the request.
      await this.redis.srem(this.#takenKey(clientId), String(callId));
    }
  }

  reportProgress(clientId: string, callId: string, fence: number, progress: object) {
    return this.#send(clientId, callId, [fence, 'progress', JSON.stringify(progress), '']);
  }

  answer(clientId: string, callId: string, fence: number, answer: ClientAnswer) {
    const signed = signedMessage(this.signatures, `answer ${callId} ${fence}`, answer);
    return this.#send(clientId, callId, [fence, 'answer', signed, answer.kind === 'result' ? '1' : '0']);
  }

  async #send(clientId: string, callId: string, message: readonly [fence: number, ...rest: string[]]) {
    const args = [clientId, callId, ...message, RECORD_TTL_MS, this.channel];
    const [code] = await answerScript.run(this.redis, [this.#call(callId), this.#takenKey(clientId)], args);
    return code as 'stored' | 'again' | 'late';
  }

  /** False when its lease had ended before. */
  async leave(clientId: string): Promise<boolean> {
    const keys = [this.#client(clientId), this.#takenKey(clientId)];
    const [wasRemoved] = await leaveScript.run(this.redis, keys, [clientId, this.keys.clients, this.channel]);
    return wasRemoved === 1;
  }

  #client(clientId: string): string {
    return `${this.keys.clients}client:${clientId}`;
  }

  #takenKey(clientId: string): string {
    return `${this.keys.clients}taken:${clientId}`;
  }

  #call(callId: string): string {
    return `${this.keys.clients}call:${callId}`;
  }

  #callKeys({ callId, tool }: Pick<ClientCall, 'callId' | 'tool'>): string[] {
    return [this.#call(callId), `${this.keys.clients}waiting:${tool}`, `${this.keys.clients}tool:${tool}`];
  }
}

function splitWords(text: string): string[] {
  return text.split(' ').filter((word) => word !== '');
}
