/**
 * Names the calls of a model. An ID names a call within one response, because many model servers number the calls of each response from
 * the start. A call of a later response must run; the same response, run again, must find its own calls.
 *
 * These distinguish two responses, in this order: the object that holds the call, the turn, and the library's name of the response.
 * Without any of these, an ID that comes to the same adapter again belongs to a later response. An ID that comes to a new adapter may
 * belong to a response that another process began, so it names the newest call.
 */
import { identifierSchema, type ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import { uuidv7 } from '../../shared/util/time.ts';
import type { Session } from '../sessions/session.ts';

/** So many recent IDs are remembered: a model that repeats an ID does so soon. */
const MAX_SEEN = 10_000;

/** One response of a model, whose calls came together. */
export interface ModelResponse {
  /** The adapter had another response before, so this one cannot be a response that a restart runs again. */
  readonly isLater: boolean;
  /** The names of the calls, by their ID and parameters. */
  readonly names: Map<string, Promise<string>>;
}

export interface GivenCall {
  readonly toolCallId: string;
  readonly namespace: string;
  readonly name: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly turnId?: string | undefined;
  /** The turn or the ID belongs to this response alone. */
  readonly isNamed: boolean;
  /** The object that holds the call, as the model gave it. */
  readonly held?: object | undefined;
  readonly response?: ModelResponse | undefined;
}

export class ModelCalls {
  readonly #session: Session;
  readonly #held = new WeakMap<object, Promise<string>>();
  /** Calls that ended here; the oldest are dropped. */
  readonly #seenKeys = new Set<string>();
  #responses = 0;

  constructor(session: Session) {
    this.#session = session;
  }

  begin(): ModelResponse {
    const isLater = this.#responses > 0;
    this.#responses += 1;
    return { isLater, names: new Map() };
  }

  /**
   * Runs a call under its name. If that name proves to belong to a call of an earlier response, the call runs under another one. `run`
   * takes the `toolCallId` to submit.
   */
  async *run<Notice>(
    given: GivenCall,
    run: (toolCallId: string) => AsyncGenerator<Notice, ToolResultEnvelope>,
  ): AsyncGenerator<Notice, ToolResultEnvelope> {
    if (given.isNamed) return yield* run(given.toolCallId);
    const key = this.#keyOf(given);
    const existing = this.#existing(key, given);
    try {
      const toolCallId = await (existing ?? this.#keep(key, given, this.#first(key, given)));
      const result = yield* run(toolCallId);
      if (existing !== undefined || toolCallId !== given.toolCallId || !isReplay(result)) return result;
      const other = await this.#keep(key, given, this.#second(key, given));
      return other === toolCallId ? result : yield* run(other);
    } finally {
      this.#see(key);
    }
  }

  #existing(key: string, { held, response }: GivenCall): Promise<string> | undefined {
    return (held && this.#held.get(held)) ?? response?.names.get(key);
  }

  #keep(key: string, { held, response }: GivenCall, name: Promise<string>): Promise<string> {
    if (held !== undefined) this.#held.set(held, name);
    response?.names.set(key, name);
    // A failure, such as Redis being out of reach, must not stay: the next try asks again.
    name.catch(() => {
      if (held !== undefined) this.#held.delete(held);
      response?.names.delete(key);
    });
    return name;
  }

  async #first(key: string, given: GivenCall): Promise<string> {
    return this.#seenKeys.has(key) ? this.#another(key, given) : given.toolCallId;
  }

  /** The name of a call whose ID belongs to a call that ended before. */
  async #second(key: string, given: GivenCall): Promise<string> {
    if (given.response?.isLater === true) return this.#another(key, given);
    return (await this.#session.repeatedCalls?.latest(key)) ?? given.toolCallId;
  }

  async #another(key: string, { toolCallId }: GivenCall): Promise<string> {
    const name = markedId(toolCallId, uuidv7());
    await this.#session.repeatedCalls?.remember(key, name);
    return name;
  }

  #keyOf({ toolCallId, namespace, name, params, turnId }: GivenCall): string {
    const { tenantId = null, sessionKey, actorId } = this.#session.record;
    return digest(canonicalJson([tenantId, sessionKey, actorId, namespace, name, toolCallId, turnId ?? null, params]));
  }

  #see(key: string): void {
    this.#seenKeys.delete(key);
    this.#seenKeys.add(key);
    if (this.#seenKeys.size > MAX_SEEN)
      for (const oldest of this.#seenKeys.keys()) return void this.#seenKeys.delete(oldest);
  }
}

/** An identifier of a model's ID and the mark of its response. */
export function markedId(toolCallId: string, mark: string): string {
  return identifierOf(`${toolCallId}#${mark}`);
}

/** The ID as an identifier. Some gateways write more into it than an identifier may hold, such as the signature of a thought. */
export function identifierOf(toolCallId: string): string {
  return identifierSchema.safeParse(toolCallId).success ? toolCallId : digest(toolCallId);
}

function isReplay({ cache }: ToolResultEnvelope): boolean {
  return cache?.matchedOn === 'completed';
}
