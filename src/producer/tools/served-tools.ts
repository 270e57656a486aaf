/** A tool client in this process: it declares tools, runs their calls with the program's functions, and sends their results. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ClientCall, PostedAnswer } from '../../shared/connectors/client-tool.ts';
import {
  type DeclaredTool,
  declaredToolRecord,
  isDeclaredTool,
  parseToolName,
} from '../../shared/connectors/declared-tool.ts';
import { classify } from '../../shared/errors/classify-error.ts';
import { ignoreCode, PawlError } from '../../shared/errors/failure.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { checkedProgress } from '../../shared/tools/tool-answers.ts';
import type { Progress } from '../../shared/tools/tool-context.ts';
import { normalizeResult, type ToolResult } from '../../shared/tools/tool-result.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { withinMs } from '../../shared/util/wait.ts';
import type { Registry } from './registry.ts';
import type { ClientCallNotice, ToolClient, ToolClients } from './tool-clients.ts';

/** The second argument of a served tool's function. */
export interface ServedCall extends ClientCall {
  /** Aborted when no caller waits for the call any more. */
  readonly signal: AbortSignal;
  progress(progress: Progress): void;
}

type ClientToolRecord = Extract<DeclaredTool, { readonly kind: 'dynamic' }>;

/** A tool that this process runs by itself. `concurrency`: how many calls at a time, all clients together. Default 4. */
export interface ServedTool extends Omit<ClientToolRecord, 'kind' | 'routing' | 'inputSchema'> {
  /** `name`, or `namespace.name`. */
  readonly name: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
  readonly concurrency?: number;
  run(params: Readonly<Record<string, unknown>>, call: ServedCall): Promise<ToolResult<unknown>> | ToolResult<unknown>;
}

export interface ServeOptions {
  /** The client's lease, milliseconds: without a heartbeat for longer, its calls are given up. Default 30,000. */
  readonly leaseMs?: number;
  /** For the registry and the audit trail. Default `local`. */
  readonly by?: string;
  /** Called for calls whose result could not be sent, and for errors that were retried. */
  readonly onError?: (error: Error) => void;
}

const WAIT_MS = 60_000;
const RETRY_DELAY_MS = 500;

interface ServedToolsDeps {
  readonly clients: ToolClients;
  readonly registry: Registry;
  onClosed(serving: ServedTools): void;
}

export class ServedTools implements AsyncDisposable {
  readonly #clients: ToolClients;
  readonly #tools: ReadonlyMap<string, ServedTool>;
  readonly #options: ServeOptions;
  readonly #running = new Map<string, AbortController>();
  readonly #work = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  #closed: Promise<void> | undefined;
  readonly #onClosed: (serving: ServedTools) => void;
  #client: ToolClient;
  #heartbeat: NodeJS.Timeout | undefined;
  readonly #loop: Promise<void>;

  /** Declares new or changed tools, and starts to take calls. Throws `CONTRACT_INVALID` for invalid declarations. */
  static async start(
    { clients, registry, onClosed }: ServedToolsDeps,
    tools: readonly ServedTool[],
    options: ServeOptions = {},
  ): Promise<ServedTools> {
    if (!Array.isArray(tools) || tools.some((tool) => typeof tool?.run !== 'function'))
      throw new PawlError('CONFIGURATION', 'serveTools takes a list of tools, each with a function `run`.');
    for (const tool of tools) await declare(registry, tool, options.by);
    const byName = new Map(tools.map((tool) => [qualifiedName(parseToolName(tool.name)), tool]));
    return new ServedTools(clients, byName, options, await join(clients, byName, options), onClosed);
  }

  private constructor(
    clients: ToolClients,
    tools: ReadonlyMap<string, ServedTool>,
    options: ServeOptions,
    client: ToolClient,
    onClosed: (serving: ServedTools) => void,
  ) {
    this.#onClosed = onClosed;
    this.#clients = clients;
    this.#tools = tools;
    this.#options = options;
    this.#client = client;
    this.#beat();
    this.#loop = this.#takeCalls();
  }

  get running(): number {
    return this.#running.size;
  }

  /** Takes calls one after the other, and runs them concurrently. */
  async #takeCalls(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        const running = [...this.#running.keys()];
        const broadcast = await this.#clients.next(this.#client.clientId, { running, waitMs: WAIT_MS, signal });
        this.#cancel(broadcast);
        if (broadcast.call !== undefined) this.#start(broadcast.call);
      } catch (error) {
        await this.#recover(error);
      }
    }
  }

  /** Recovers from an error: joins again after a lost lease, which aborts running calls; otherwise waits. */
  async #recover(error: unknown): Promise<void> {
    const { onError } = this.#options;
    if (this.#closing.signal.aborted) return;
    onError?.(error as Error);
    try {
      if (error instanceof PawlError && error.code === 'NOT_FOUND') {
        for (const controller of this.#running.values()) controller.abort(new PawlError('LEASE_LOST'));
        this.#client = await join(this.#clients, this.#tools, this.#options);
        return;
      }
    } catch (joinError) {
      onError?.(joinError as Error);
    }
    await sleep(RETRY_DELAY_MS, undefined, { signal: this.#closing.signal }).catch(() => {});
  }

  #beat(): void {
    this.#heartbeat = setInterval(() => {
      this.#clients.heartbeat(this.#client.clientId, [...this.#running.keys()]).then(
        (broadcast) => this.#cancel(broadcast),
        // The poll gets the same error, and recovers from it.
        () => {},
      );
    }, this.#client.leaseMs / 3).unref();
  }

  #cancel({ cancelled }: ClientCallNotice): void {
    for (const callId of cancelled) {
      this.#running.get(callId)?.abort(new PawlError('CANCELLED'));
      this.#running.delete(callId);
    }
  }

  #start(call: ClientCall): void {
    const work = this.#run(call).finally(() => this.#work.delete(work));
    this.#work.add(work);
  }

  async #run(call: ClientCall): Promise<void> {
    const controller = new AbortController();
    const { clientId } = this.#client;
    this.#running.set(call.callId, controller);
    try {
      const answer = await this.#runTool(call, clientId, controller.signal);
      await this.#sendAnswer(clientId, call.callId, answer, controller.signal);
    } finally {
      if (this.#running.get(call.callId) === controller) this.#running.delete(call.callId);
    }
  }

  /** Sends an answer until it is accepted or refused. A call without an answer would be dispatched again, and run twice. */
  async #sendAnswer(clientId: string, callId: string, answer: PostedAnswer, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      try {
        return await this.#clients.answer(clientId, callId, answer);
      } catch (error) {
        this.#options.onError?.(error as Error);
        if (error instanceof PawlError && error.code === 'LEASE_LOST') return;
        await sleep(RETRY_DELAY_MS, undefined, { signal }).catch(() => {});
      }
    }
  }

  /** Runs the tool's function, and turns its result or error into an answer. */
  async #runTool(call: ClientCall, clientId: string, signal: AbortSignal): Promise<PostedAnswer> {
    const { callId, fence } = call;
    const progress = (report: Progress) =>
      void this.#clients
        .progress(clientId, callId, fence, checkedProgress(call.tool, report))
        .catch((error: Error) => this.#options.onError?.(error));
    try {
      const tool = this.#tools.get(call.tool);
      if (tool === undefined) throw new PawlError('UNKNOWN_TOOL', `This client does not serve ${call.tool}.`);
      const result = normalizeResult(tool.name, await tool.run(call.arguments, { ...call, signal, progress }));
      if (typeof result === 'string') throw new PawlError('RESULT_INVALID', result);
      checkSerializable(tool.name, result);
      return { fence, ...result } as unknown as PostedAnswer;
    } catch (error) {
      const { code, message, retriable, nothingHappened, retryAfterMs } = classify(error);
      const failure = { code, message, retriable, nothingHappened };
      return { fence, error: retryAfterMs === undefined ? failure : { ...failure, retryAfterMs } };
    }
  }

  /**
   * Takes no further calls, waits `graceMs` for those that run, and leaves. Calls that still run then end with a typed error for their
   * callers. The declarations stay. A second call waits for the first.
   */
  close(graceMs = 0): Promise<void> {
    // The client's connection stays open until then, to send the results of running calls.
    this.#closed ??= this.#close(graceMs).finally(() => this.#onClosed(this));
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(graceMs: number): Promise<void> {
    this.#closing.abort();
    await this.#loop;
    await withinMs(Promise.all(this.#work), graceMs);
    clearInterval(this.#heartbeat);
    for (const controller of this.#running.values()) controller.abort(new PawlError('DRAINED'));
    await this.#clients.leave(this.#client.clientId, this.#options.by).catch(ignoreCode('NOT_FOUND'));
  }
}

/** Throws `RESULT_INVALID` for a result that is not JSON-serializable: no retry could send it. */
function checkSerializable(tool: string, result: ToolResult<unknown>): void {
  try {
    JSON.stringify(result);
  } catch (error) {
    throw new PawlError('RESULT_INVALID', `The output of ${tool} cannot be said in JSON: ${(error as Error).message}`);
  }
}

function join(
  clients: ToolClients,
  tools: ReadonlyMap<string, ServedTool>,
  { leaseMs, by }: ServeOptions,
): Promise<ToolClient> {
  return clients.join([...tools.keys()], {
    ...defined({ leaseMs, by }),
  });
}

/** Declares a tool, unless the same declaration exists already. */
async function declare(registry: Registry, { run: _, concurrency, name, ...tool }: ServedTool, by?: string) {
  const spec = {
    kind: 'dynamic',
    ...tool,
    routing: concurrency === undefined ? {} : { concurrency },
  } as ClientToolRecord;
  const declared = await registry.read(name);
  const identity = { ...parseToolName(name), revision: 0, updatedAtMs: 0, updatedBy: '' };
  if (isDeclaredTool(declared) && declared.definition === (await declaredToolRecord(spec, identity)).record.definition)
    return;
  await registry.put(name, spec, by === undefined ? {} : { by });
}
