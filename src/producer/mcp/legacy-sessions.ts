/** Sessions of clients of 2025-11-25, which this process keeps while they are used. */
import { type Server, WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server';
import { uuidv7 } from '../../shared/util/time.ts';
import type { Caller } from '../http/core/access.ts';
import { OpenRequests } from './open-requests.ts';

const MAX_SESSIONS = 10_000;

interface LegacySession {
  readonly callerId: string;
  readonly server: Server;
  readonly transport: WebStandardStreamableHTTPServerTransport;
  readonly openRequests: OpenRequests;
}

export class LegacySessions {
  readonly #sessions = new Map<string, LegacySession>();
  readonly #createServer: (caller: Caller) => Server;

  constructor(createServer: (caller: Caller) => Server) {
    this.#createServer = createServer;
  }

  /** Makes a session, which counts from the client's `initialize` on. Above the limit another session ends. */
  async open(caller: Caller): Promise<WebStandardStreamableHTTPServerTransport> {
    const server = this.#createServer(caller);
    const transport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => uuidv7(),
      onsessioninitialized: (id) => {
        this.#sessions.set(id, { callerId: caller.id, server, transport, openRequests: new OpenRequests(transport) });
        const surplus = this.#sessions.size > MAX_SESSIONS ? oldestOfBusiestCaller(this.#sessions) : undefined;
        if (surplus !== undefined) void this.#end(surplus);
      },
      onsessionclosed: (id) => void this.#sessions.delete(id),
    });
    await server.connect(transport);
    return transport;
  }

  /** The caller's session of this ID, which becomes the most recently used one. Sessions of other callers are not found. */
  find(id: string, caller: Caller): LegacySession | undefined {
    const session = this.#sessions.get(id);
    if (session === undefined || session.callerId !== caller.id) return undefined;
    this.#sessions.delete(id);
    this.#sessions.set(id, session);
    return session;
  }

  notifyToolsChanged(): void {
    for (const { server } of this.#sessions.values()) server.sendToolListChanged().catch(() => {});
  }

  async close(): Promise<void> {
    await Promise.all([...this.#sessions.keys()].map((id) => this.#end(id)));
  }

  async #end(id: string): Promise<void> {
    const session = this.#sessions.get(id);
    this.#sessions.delete(id);
    await session?.server.close();
  }
}

/** The least recently used session of the caller with the most sessions: a caller's flood ends its own sessions only. */
export function oldestOfBusiestCaller(
  sessions: ReadonlyMap<string, Pick<LegacySession, 'callerId'>>,
): string | undefined {
  const byCaller = Map.groupBy(sessions, ([, { callerId }]) => callerId);
  const [busiest] = [...byCaller.values()].sort((one, other) => other.length - one.length);
  return busiest?.[0]?.[0];
}
