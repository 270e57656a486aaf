/**
 * Types into terminals of other workers. Redis records each terminal's owner, and the request goes through the owner's
 * mailbox. Requests are signed, executed at most once, and refused when they arrive late.
 */
import { randomUUID } from 'node:crypto';
import { PawlError, reasonOf, ToolError } from '../../shared/errors/failure.ts';
import type { Backend } from '../../shared/store/backend.ts';
import { OWNER_RENEWAL_MS } from '../../shared/store/fleet/terminal-owners.ts';
import type { WorkerMailbox } from '../../shared/store/fleet/worker-mailbox.ts';
import type { TerminalReport } from '../../shared/tools/capabilities.ts';
import { onAbort, withinMs } from '../../shared/util/wait.ts';
import { unknownTerminal } from './terminal.ts';

/** A living owner accepts a message within this time. After it, the owner has not received the message. */
const ACCEPT_LIMIT_MS = 2_000;
/** How much longer than the wait itself an answer may take once the message was accepted. */
const ANSWER_GRACE_MS = 5_000;

export interface WriteRequest {
  readonly sessionKey: string;
  readonly terminalId: string;
  readonly chars: string;
  readonly waitMs: number;
}

type Message =
  | ({ readonly kind: 'write'; readonly id: string; readonly from: string; readonly notAfterMs: number } & WriteRequest)
  | { readonly kind: 'report'; readonly id: string; readonly report: TerminalReport }
  | { readonly kind: 'refused'; readonly id: string; readonly code: string; readonly message: string };

type WriteHandler = (request: WriteRequest) => Promise<TerminalReport>;

export interface TerminalLinkOptions {
  readonly backend: Pick<Backend, 'clock' | 'terminals' | 'mailboxOf'>;
  readonly workerId: string;
  onError(error: Error): void;
}

export class TerminalLink {
  readonly #options: TerminalLinkOptions;
  readonly #mailbox: WorkerMailbox;
  readonly #pendingReplies = new Map<string, (message: Message) => void>();
  /** Recent request ids, so that a request cannot be replayed. The value is the time at which the request would be refused as late. */
  readonly #recentIds = new Map<string, number>();
  readonly #owned = new Map<string, string>();
  #handleWrite: WriteHandler = async ({ terminalId }) => {
    throw unknownTerminal(terminalId);
  };
  #renewal: NodeJS.Timeout | undefined;

  constructor(options: TerminalLinkOptions) {
    this.#options = options;
    this.#mailbox = options.backend.mailboxOf(options.workerId);
  }

  onWrite(onWrite: WriteHandler): void {
    this.#handleWrite = onWrite;
  }

  // The owner's side

  /** Publishes this worker as the terminal's owner. */
  async register(terminalId: string, sessionKey: string): Promise<void> {
    const { backend, workerId } = this.#options;
    this.#open();
    this.#owned.set(terminalId, sessionKey);
    await backend.terminals.save(terminalId, { workerId, sessionKey });
    this.#renewal ??= setInterval(() => this.#renew(), OWNER_RENEWAL_MS).unref();
  }

  #renew(): void {
    const { backend, workerId, onError } = this.#options;
    for (const [terminalId, sessionKey] of this.#owned)
      backend.terminals.save(terminalId, { workerId, sessionKey }).catch(onError);
  }

  unregister(terminalId: string): void {
    const { backend, onError } = this.#options;
    if (this.#owned.delete(terminalId)) backend.terminals.remove(terminalId).catch(onError);
  }

  async #answer(request: Extract<Message, { kind: 'write' }>): Promise<void> {
    const { sessionKey, terminalId, chars, waitMs, id, from, notAfterMs } = request;
    if (this.#isStale(id, notAfterMs)) return;
    const answer = await this.#handleWrite({ sessionKey, terminalId, chars, waitMs }).then(
      (report): Message => ({ kind: 'report', id, report }),
      (error: unknown): Message => {
        const { code, message } = error as { readonly code?: string; readonly message: string };
        return { kind: 'refused', id, code: code ?? 'TOOL_FAILED', message };
      },
    );
    await this.#mailbox.send(from, answer);
  }

  #isStale(id: string, notAfterMs: number): boolean {
    const nowMs = this.#options.backend.clock.now();
    for (const [requestId, untilMs] of this.#recentIds) if (untilMs < nowMs) this.#recentIds.delete(requestId);
    if (notAfterMs < nowMs || this.#recentIds.has(id)) return true;
    this.#recentIds.set(id, notAfterMs);
    return false;
  }

  // The caller's side

  /** Types into a terminal of another worker. Throws `NOT_FOUND`. When the owner is silent, the error says what is known of the effect. */
  async write({ signal, ...request }: WriteRequest & { readonly signal: AbortSignal }): Promise<TerminalReport> {
    const { backend, workerId } = this.#options;
    const owner = await backend.terminals.find(request.terminalId);
    // A record of this very worker belongs to a terminal that has just ended.
    if (owner === undefined || owner.sessionKey !== request.sessionKey || owner.workerId === workerId)
      throw unknownTerminal(request.terminalId);
    this.#open();
    const id = randomUUID();
    const reply = Promise.withResolvers<Message>();
    // An abort may reject the promise before anything awaits it.
    reply.promise.catch(() => undefined);
    this.#pendingReplies.set(id, reply.resolve);
    const stopListening = onAbort(signal, () => reply.reject(signal.reason));
    try {
      const notAfterMs = backend.clock.now() + ACCEPT_LIMIT_MS;
      const message: Message = { kind: 'write', id, from: workerId, notAfterMs, ...request };
      const withdraw = await withUnknownEffect(this.#mailbox.send(owner.workerId, message), request.terminalId);
      const earlyAnswer = await withinMs(reply.promise, ACCEPT_LIMIT_MS);
      const undelivered = earlyAnswer === undefined && (await withUnknownEffect(withdraw(), request.terminalId));
      if (undelivered) throw unreachable(request.terminalId, DEAD, { nothingHappened: true });
      const answer = earlyAnswer ?? (await withinMs(reply.promise, request.waitMs + ANSWER_GRACE_MS));
      if (answer === undefined) throw unreachable(request.terminalId, SILENT);
      return reportOf(answer);
    } finally {
      this.#pendingReplies.delete(id);
      stopListening();
    }
  }

  // Both sides

  #open(): void {
    const { onError } = this.#options;
    this.#mailbox.open((message) => {
      const received = message as Message;
      if (received.kind === 'write') this.#answer(received).catch(onError);
      else this.#pendingReplies.get(received.id)?.(received);
    }, onError);
  }

  async close(): Promise<void> {
    clearInterval(this.#renewal);
    await this.#mailbox.close();
  }
}

/** An error or timeout of Redis proves nothing here: the owner may have the message already. */
async function withUnknownEffect<T>(step: Promise<T>, terminalId: string): Promise<T> {
  try {
    return await step;
  } catch (error) {
    const fault = `could not be reached (${reasonOf(error)}); the input may or may not have been typed`;
    throw unreachable(terminalId, fault, { cause: error });
  }
}

const DEAD = 'does not answer and has probably stopped; nothing was typed';
const SILENT = 'stopped answering; the input may or may not have been typed';

function unreachable(terminalId: string, fault: string, more: { nothingHappened?: true; cause?: unknown } = {}) {
  const message = `The worker that holds the terminal ${terminalId} ${fault}.`;
  return new ToolError(message, { code: 'TERMINAL_UNREACHABLE', ...more });
}

function reportOf(answer: Message): TerminalReport {
  switch (answer.kind) {
    case 'report':
      return answer.report;
    case 'refused':
      if (answer.code === 'NOT_FOUND') throw new PawlError('NOT_FOUND', answer.message);
      throw new ToolError(answer.message, { code: answer.code });
    case 'write':
      throw new ToolError('The worker that holds the terminal answered with a request instead of a report.');
  }
}
