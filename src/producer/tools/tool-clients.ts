/**
 * Clients that run tools themselves: each names the declared tools that it serves, polls for calls, and answers them. A client that
 * does not renew its lease is removed.
 */
import { randomBytes } from 'node:crypto';
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import { CLIENT_LEASE, type ClientCall, clientAnswer, type PostedAnswer } from '../../shared/connectors/client-tool.ts';
import { parseToolName } from '../../shared/connectors/declared-tool.ts';
import { invalidPart, PawlError } from '../../shared/errors/failure.ts';
import type { ClientCalls } from '../../shared/store/connectors/client-calls.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import type { Progress } from '../../shared/tools/tool-context.ts';
import { NamedWaits } from '../../shared/util/named-waits.ts';
import type { Registry } from './registry.ts';

interface ToolClientsDeps {
  readonly clientCalls: Omit<ClientCalls, 'published' | 'look' | 'withdraw'>;
  readonly registry: Pick<Registry, 'read'>;
  readonly audit: RecordAudit;
}

export interface ToolClient {
  /** A secret: a caller that knows it acts as the client. */
  readonly clientId: string;
  /** Qualified names. */
  readonly tools: readonly string[];
  readonly leaseMs: number;
}

/** The answer to a client's poll. */
export interface ClientCallNotice {
  readonly call?: ClientCall;
  /** Calls that the client runs and that no caller waits for any more. */
  readonly cancelled: readonly string[];
  readonly leaseMs: number;
}

interface Poll {
  /** The calls that the client runs. A call that it took but does not list is dispatched to it again. */
  readonly running: readonly string[];
  readonly waitMs: number;
  /** Aborting ends the wait. */
  readonly signal?: AbortSignal;
  /** False to receive only cancelled calls. Default true. */
  readonly take?: boolean;
}

/** Broadcasts may be lost, so a waiting client also polls its queue. */
const POLL_MS = 2_000;

export class ToolClients {
  readonly #deps: ToolClientsDeps;
  readonly #waits = new NamedWaits();

  constructor(deps: ToolClientsDeps) {
    this.#deps = deps;
  }

  /** Wakes the polls of a tool's clients: one of its calls waits for a client, or is cancelled. */
  notifyWaiting(tool: string): void {
    this.#waits.notify(tool);
  }

  /** Throws `UNKNOWN_TOOL`, and `CONTRACT_INVALID` for a tool that no client may run. */
  async join(
    tools: readonly string[],
    { leaseMs = CLIENT_LEASE.defaultMs as number, by = 'local' } = {},
  ): Promise<ToolClient> {
    checkLease(leaseMs);
    const names = new Set<string>();
    for (const tool of tools) {
      const record = await this.#deps.registry.read(tool);
      if (record === undefined)
        throw new PawlError('UNKNOWN_TOOL', `The registry declares no tool ${JSON.stringify(tool)}.`);
      const { kind } = record;
      if (kind !== 'dynamic')
        throw invalidPart('The tool', 'tools', `must be a tool of the kind dynamic; ${tool} is of the kind ${kind}`);
      names.add(qualifiedName(parseToolName(tool)));
    }
    const clientId = `client-${randomBytes(16).toString('hex')}`;
    await this.#deps.clientCalls.join(clientId, [...names], leaseMs);
    for (const tool of names) await this.#recordChange(tool, 'served', by);
    return { clientId, tools: [...names], leaseMs };
  }

  /**
   * Waits for the next call or for cancelled calls. Throws `NOT_FOUND` after the lease, and `LEASE_LOST` for a poll that a newer one of the
   * client has replaced.
   */
  async next(clientId: string, { running, waitMs, signal, take = true }: Poll): Promise<ClientCallNotice> {
    const { clientCalls } = this.#deps;
    const deadlineMs = performance.now() + waitMs;
    const tools = await clientCalls.toolsOf(clientId);
    const poll = randomBytes(8).toString('hex');
    for (let first = true; ; first = false) {
      // Subscribe before reading, so that no call is missed in between.
      const listener = this.#waits.listen(tools, signal);
      try {
        const renewed = await clientCalls.next(clientId, running, take ? { id: poll, first } : undefined);
        if (renewed.kind !== 'renewed') throw renewed.kind === 'gone' ? clientGone() : pollSuperseded();
        const { kind: _, ...answer } = renewed;
        const leftMs = deadlineMs - performance.now();
        if (answer.call !== undefined || answer.cancelled.length > 0 || leftMs <= 0 || signal?.aborted === true)
          return answer;
        await listener.within(Math.min(leftMs, POLL_MS, answer.leaseMs / 3));
      } finally {
        listener.stop();
      }
    }
  }

  /** Renews the lease. Throws `NOT_FOUND` when it has ended. */
  heartbeat(clientId: string, running: readonly string[]): Promise<ClientCallNotice> {
    return this.next(clientId, { running, waitMs: 0, take: false });
  }

  /** Returns false when no caller waits for the call any more; the client may stop. */
  async progress(clientId: string, callId: string, fence: number, progress: Progress): Promise<boolean> {
    return (await this.#deps.clientCalls.reportProgress(clientId, callId, fence, progress)) === 'stored';
  }

  /** Accepts the answer of a call, once; repeating it changes nothing. Throws `LEASE_LOST` when the client no longer holds the call. */
  async answer(clientId: string, callId: string, posted: PostedAnswer): Promise<void> {
    const result = await this.#deps.clientCalls.answer(clientId, callId, posted.fence, clientAnswer(posted));
    if (result !== 'late') return;
    throw new PawlError(
      'LEASE_LOST',
      'The call is not this client’s any more: it was cancelled, its time was over, or the client’s lease was. The result is not used.',
    );
  }

  /** Removes a client. Its running calls end at once with a typed error. Throws `NOT_FOUND` when it was removed already. */
  async leave(clientId: string, by = 'local'): Promise<void> {
    const tools = await this.#deps.clientCalls.toolsOf(clientId);
    if (!(await this.#deps.clientCalls.leave(clientId))) throw clientGone();
    for (const tool of tools) await this.#recordChange(tool, 'left', by);
  }

  async #recordChange(tool: string, action: 'served' | 'left', by: string): Promise<void> {
    await this.#deps.audit({ type: 'registry-changed', tool, kind: 'dynamic', action, by });
  }
}

function clientGone(): PawlError {
  return new PawlError('NOT_FOUND', 'There is no such client, or its lease is over: say again which tools it serves.');
}

function pollSuperseded(): PawlError {
  return new PawlError('LEASE_LOST', 'The client has asked again meanwhile: it has one request for calls at a time.');
}

function checkLease(leaseMs: number): void {
  const { minMs, maxMs } = CLIENT_LEASE;
  if (Number.isInteger(leaseMs) && leaseMs >= minMs && leaseMs <= maxMs) return;
  throw invalidPart('The lease', 'leaseMs', `must be ${minMs} to ${maxMs} milliseconds; got ${leaseMs}`);
}
