/**
 * One worker's connection to one MCP server. The first call that needs it opens it, all calls share it, and it is
 * closed after a time without calls. A broken connection is opened again. It has its own circuit: a server that breaks
 * repeatedly rests longer each time, and calls are refused meanwhile.
 *
 *     idle ── call ──► opening ──► open ── server ends, breaks the protocol ──► resting ── time passes ──► idle
 *                         └────────────── cannot be opened ──────────────────────▲
 */
import {
  Client,
  type ClientOptions,
  type RequestOptions,
  SdkError,
  SdkErrorCode,
  type Transport,
} from '@modelcontextprotocol/client';
import type { Settings } from '../../../shared/config/config.ts';
import type { Environment } from '../../../shared/config/variables.ts';
import type { McpDefinition } from '../../../shared/connectors/mcp.ts';
import type { McpConnectionOptions } from '../../../shared/connectors/mcp-routing.ts';
import { PawlError, reasonOf } from '../../../shared/errors/failure.ts';
import { PAWL_VERSION } from '../../../shared/store/redis/own-files.ts';
import type { Logger } from '../../../shared/telemetry/log.ts';
import { endOf } from '../../../shared/util/text/text-cut.ts';
import { unlessAborted } from '../../../shared/util/wait.ts';
import { DefinitionCache, readDefinitions } from './definitions.ts';
import { connectFailure, connectionReset, requestFailure, serverUnavailable } from './failures.ts';
import { openHttpTransport } from './http.ts';
import { AnswerReader } from './incoming.ts';
import { StdioTransport } from './stdio.ts';

export interface McpConnectionDeps {
  readonly settings: Pick<Settings, 'dataDir' | 'sandbox' | 'allowedHosts'>;
  readonly environment: Environment;
  readonly log: Logger;
  /** How long a message may take to arrive once it has begun. */
  readonly messageTimeoutMs?: number;
  /** How long a server may take to answer a connection attempt. */
  readonly connectTimeoutMs?: number;
}

/** A program may be installed first, as `npx` does. */
const CONNECT_TIMEOUTS_MS = { stdio: 55_000, http: 20_000 } as const;
/** A program of the older protocol era need not answer the probe for the newer one. Over HTTP, a silence says nothing about the era. */
const PROBE_TIMEOUT_MS = 5_000;
/** Attempts have their own limits; the SDK's must never be reached first. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;
const IDLE_MS = 10 * 60_000;
const INITIAL_REST_MS = 250;
const MAX_REST_MS = 30_000;

/** The beginning of the SDK's message about an answer that no request waits for; the answer follows as JSON. */
const UNKNOWN_ID = 'Received a response for an unknown message ID: ';

interface OpenConnection {
  readonly client: Client;
  readonly transport: Transport;
  /** The server's fault that ended the connection. */
  fault: Error | undefined;
  /** The number of running calls. A call that fails by itself leaves the connection to the others. */
  calls: number;
  /** The server has answered a call, so a later refusal without a reason may mean that it has restarted. */
  hasAnswered: boolean;
  /** The connection takes no further calls, and is closed after its last one. */
  isRetired: boolean;
  readonly definitions: DefinitionCache;
  readonly answers: AnswerReader;
}

export class McpConnection {
  readonly server: string;
  readonly #options: McpConnectionOptions;
  readonly #deps: McpConnectionDeps;
  #opening: Promise<OpenConnection> | undefined;
  #open: OpenConnection | undefined;
  /** Abandoned connections, on which calls still wait for their answers. */
  readonly #retired = new Set<OpenConnection>();
  #failures = 0;
  #resting: { readonly untilMs: number; readonly cause: Error } | undefined;
  /** The server uses the older protocol era, so a connection over standard streams does not probe it again. */
  #legacy = false;
  #inUse = 0;
  #idleTimer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(server: string, options: McpConnectionOptions, deps: McpConnectionDeps) {
    this.server = server;
    this.#options = options;
    this.#deps = deps;
  }

  /** The server's name and version, for the records of an import. */
  async version(): Promise<string | undefined> {
    return (await this.#connected()).client.getServerVersion()?.version;
  }

  async hasResources(): Promise<boolean> {
    return (await this.#connected()).client.getServerCapabilities()?.resources !== undefined;
  }

  /** All definitions as the server lists them. A name can occur twice, and an invalid entry is marked as such. */
  definitions(signal: AbortSignal): Promise<readonly McpDefinition[]> {
    return this.#withConnection(signal, (open) => readDefinitions(open.client, this.server, signal));
  }

  /**
   * Sends a request after checking that the server's definition of `tool` is the accepted one. Throws
   * `DEFINITION_CHANGED` where it is not, and otherwise the errors of `failures.ts`.
   */
  async call<T>(
    accepted: { readonly tool: string; readonly digest: string },
    signal: AbortSignal,
    send: (client: Client, definition: McpDefinition, options: RequestOptions) => Promise<T>,
  ): Promise<T> {
    return this.#withConnection(signal, async (open) => {
      const definition = await open.definitions.accepted(accepted, signal);
      const result = await send(open.client, definition, { signal, timeout: NO_TIMEOUT_MS });
      open.hasAnswered = true;
      return result;
    });
  }

  /** Sends a request that needs no definition. */
  request<T>(signal: AbortSignal, send: (client: Client, options: RequestOptions) => Promise<T>): Promise<T> {
    return this.#withConnection(signal, (open) => send(open.client, { signal, timeout: NO_TIMEOUT_MS }));
  }

  /** A server that no longer knows the session, because it has restarted, has not executed the request: it is sent once more. */
  async #withConnection<T>(
    signal: AbortSignal,
    use: (open: OpenConnection) => Promise<T>,
    isRepeated = false,
  ): Promise<T> {
    clearTimeout(this.#idleTimer);
    this.#inUse += 1;
    try {
      const open = await unlessAborted(this.#connected(), signal);
      open.calls += 1;
      try {
        const result = await use(open);
        this.#failures = 0;
        return result;
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        const { failure, isClosed, isUnknownSession } = requestFailure(error, open, this.server);
        if (isClosed) this.#retire(open);
        if (isUnknownSession === true && !isRepeated) return await this.#withConnection(signal, use, true);
        throw failure;
      } finally {
        open.calls -= 1;
        if (open.isRetired && open.calls === 0) await this.#closeConnection(open);
      }
    } finally {
      this.#inUse -= 1;
      if (this.#inUse === 0 && !this.#isClosed)
        this.#idleTimer = setTimeout(() => void this.#closeIdle(), IDLE_MS).unref();
    }
  }

  // Opening and closing

  #connected(): Promise<OpenConnection> {
    if (this.#isClosed) throw new PawlError('DRAINED');
    if (this.#open !== undefined) return Promise.resolve(this.#open);
    const restMs = (this.#resting?.untilMs ?? 0) - performance.now();
    if (this.#resting !== undefined && restMs > 0) {
      const { message } = this.#resting.cause;
      const retryAfterMs = Math.ceil(restMs);
      throw serverUnavailable(`The MCP server ${this.server} is resting after a failure. ${message}`, { retryAfterMs });
    }
    this.#opening ??= this.#connect().finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  async #connect(): Promise<OpenConnection> {
    const startedAtMs = performance.now();
    try {
      const open = await this.#connectInEra(this.#legacy).catch((error: { readonly ended?: boolean }) => {
        // Some servers of the older era exit when they are probed for the newer one.
        if (this.#options.transport !== 'stdio' || this.#legacy || error.ended !== true) throw error;
        return this.#connectInEra(true);
      });
      this.#legacy = this.#options.transport === 'stdio' && open.client.getProtocolEra() === 'legacy';
      this.#open = open;
      const { log } = this.#deps;
      const tookMs = Math.round(performance.now() - startedAtMs);
      log.info({ event: 'mcp_connected', server: this.server, era: open.client.getProtocolEra(), tookMs }, 'connected');
      return open;
    } catch (error) {
      const failure = connectFailure(error, this.server);
      this.#recordFailure(failure);
      throw failure;
    }
  }

  async #connectInEra(legacy: boolean): Promise<OpenConnection> {
    const { connectTimeoutMs = CONNECT_TIMEOUTS_MS[this.#options.transport] } = this.#deps;
    const startedAtMs = performance.now();
    const isProgram = this.#options.transport === 'stdio';
    const probeTimeoutMs = isProgram ? Math.min(PROBE_TIMEOUT_MS, connectTimeoutMs) : connectTimeoutMs;
    let open: OpenConnection | undefined;
    const options: ClientOptions = {
      capabilities: {},
      versionNegotiation: { mode: legacy ? 'legacy' : 'auto', probe: { timeoutMs: probeTimeoutMs } },
      // Results are checked against the accepted definition here, not against the server's newest one.
      jsonSchemaValidator: {
        getValidator: () => (data) => ({ valid: true, data: data as never, errorMessage: undefined }),
      },
      listChanged: {
        tools: {
          autoRefresh: false,
          debounceMs: 0,
          onChanged: () => {
            open?.definitions.clear();
          },
        },
      },
    };
    const client = new Client({ name: 'pawl', version: PAWL_VERSION }, options);
    const answers = new AnswerReader();
    const transport = this.#transport(answers, (broken) =>
      broken instanceof PawlError ? broken : this.#brokenStreamError(open),
    );
    const definitions = new DefinitionCache(this.server, (signal) => this.definitions(signal));
    open = {
      client,
      transport,
      fault: undefined,
      calls: 0,
      hasAnswered: false,
      isRetired: false,
      definitions,
      answers,
    };
    const opened = open;
    client.onclose = () => this.#onClosed(opened);
    client.onerror = (error) => this.#onSdkError(opened, error);
    try {
      await client.connect(transport, { timeout: connectTimeoutMs });
    } catch (error) {
      const hasSession = transport.sessionId !== undefined;
      await transport.close().catch(() => undefined);
      const stderr = transport instanceof StdioTransport ? transport.stderrTail : '';
      const fault = transport instanceof StdioTransport ? transport.fault : undefined;
      const reason = connectReason(error, performance.now() - startedAtMs);
      throw Object.assign(new Error(messageWith(reason, stderr), { cause: fault ?? error }), {
        ended: fault !== undefined,
        hasSession,
      });
    }
    return open;
  }

  #transport(answers: AnswerReader, lost: (broken: Error | undefined) => Error): Transport {
    const { settings, environment, messageTimeoutMs } = this.#deps;
    const options = this.#options;
    if (options.transport === 'http')
      return openHttpTransport({
        server: this.server,
        connection: options,
        allowedHosts: settings.allowedHosts,
        environment,
        answers,
        lost,
      });
    return new StdioTransport({
      server: this.server,
      connection: options,
      settings,
      environment,
      answers,
      ...(messageTimeoutMs !== undefined && { messageTimeoutMs }),
    });
  }

  /** The SDK reports every message here that it could not match. */
  #onSdkError(open: OpenConnection, error: Error): void {
    if (open.transport instanceof StdioTransport) open.fault ??= open.transport.fault;
    if (!error.message.startsWith(UNKNOWN_ID)) return;
    const { id } = JSON.parse(error.message.slice(UNKNOWN_ID.length)) as { readonly id?: string | number };
    if (id === undefined || open.answers.wasSent(id)) {
      const { log } = this.#deps;
      const what = id === undefined ? 'an answer to no request' : 'a second answer to a request, or a late one';
      log.warn({ event: 'mcp_answer_ignored', server: this.server }, what);
      return;
    }
    const message = `The MCP server ${this.server} answered a request that was never sent; the connection was closed.`;
    open.fault ??= new PawlError('MCP_PROTOCOL', message);
    void open.transport.close().catch(() => undefined);
  }

  /** Returns the error for a call whose stream broke and cannot be resumed. */
  #brokenStreamError(open: OpenConnection | undefined): Error {
    const failure = connectionReset(`The connection to the MCP server ${this.server} broke before it answered.`);
    if (open !== undefined && this.#open === open) {
      this.#retire(open);
      this.#recordFailure(failure);
    }
    return failure;
  }

  #onClosed(open: OpenConnection): void {
    if (open.transport instanceof StdioTransport) open.fault ??= open.transport.fault;
    if (this.#open !== open) return;
    this.#open = undefined;
    if (!this.#isClosed) this.#recordFailure(open.fault ?? new Error('It closed the connection.'));
  }

  #recordFailure(cause: Error): void {
    this.#failures += 1;
    // The first failure may be a restart, so there is no rest after it.
    const restMs = this.#failures === 1 ? 0 : Math.min(MAX_REST_MS, INITIAL_REST_MS * 2 ** (this.#failures - 2));
    this.#resting = { untilMs: performance.now() + restMs, cause };
    const { log } = this.#deps;
    log.warn({ event: 'mcp_broken', server: this.server, restMs, error: cause.message }, 'an MCP server broke');
  }

  /** Takes a connection out of use for later calls, without blaming the server. */
  #retire(open: OpenConnection): void {
    if (this.#open === open) this.#open = undefined;
    open.isRetired = true;
    this.#retired.add(open);
  }

  /** Ends a connection, even while calls use it. */
  async #closeConnection(open: OpenConnection): Promise<void> {
    this.#retire(open);
    await open.transport.close().catch(() => undefined);
    this.#retired.delete(open);
  }

  async #closeIdle(): Promise<void> {
    if (this.#inUse === 0 && this.#open !== undefined) await this.#closeConnection(this.#open);
  }

  /** Ends the server, or the session with it. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#idleTimer);
    const open = this.#open ?? (await this.#opening?.catch(() => undefined));
    if (open !== undefined) this.#retire(open);
    await Promise.all([...this.#retired].map((retired) => this.#closeConnection(retired)));
  }
}

function connectReason(error: unknown, tookMs: number): string {
  const isTimeout = SdkError.isInstance(error) && error.code === SdkErrorCode.RequestTimeout;
  return isTimeout ? `it did not answer within ${Math.max(1, Math.round(tookMs / 1_000))} s` : reasonOf(error);
}

function messageWith(message: string, stderr: string): string {
  return stderr === '' ? message : `${message}; it said: ${endOf(stderr, 500)}`;
}
