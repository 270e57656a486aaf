/**
 * Names the calls of a model. An ID names a call within one answer: many model servers number the calls of each answer from the start.
 * A call of a later answer must run, and the same answer run again must find its own calls.
 *
 * What tells the two apart is, in this order: the object that holds the call, the turn, what the library says of the answer. Without
 * any of them, an ID that comes again to the same adapter is a later answer's; an ID that comes to a new adapter may be that of an answer
 * which another process began, so it names the newest call.
 */

import { identifierSchema, type ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import { uuidv7 } from '../../shared/util/time.ts';
import type { Session } from '../sessions/session.ts';

/** A model that repeats an ID does so soon. */
const MAX_SEEN = 10_000;

/** One answer of a model, whose calls came together. */
export interface Answer {
  /** The adapter had another one before: this one cannot be what a restart runs again. */
  readonly isLater: boolean;
  /** Names of calls that came with the same ID and parameters. */
  readonly names: Map<string, Promise<string>>;
}

export interface GivenCall {
  readonly toolCallId: string;
  readonly namespace: string;
  readonly name: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly turnId?: string | undefined;
  /** The turn, or the ID, is that of one answer alone. */
  readonly isNamed: boolean;
  /** The object that holds the call, as the model gave it. */
  readonly held?: object | undefined;
  readonly answer?: Answer | undefined;
}

export class ModelCalls {
  readonly #session: Session;
  readonly #held = new WeakMap<object, Promise<string>>();
  /** Calls that came to their end here; the oldest are forgotten. */
  readonly #seen = new Set<string>();
  #answers = 0;

  constructor(session: Session) {
    this.#session = session;
  }

  begin(): Answer {
    const isLater = this.#answers > 0;
    this.#answers += 1;
    return { isLater, names: new Map() };
  }

  /**
   * Runs a call under its name, once more under another one where the first proves to be a call of an earlier answer. `run` takes the
   * `toolCallId` to hand in.
   */
  async *run<Broadcast>(
    given: GivenCall,
    run: (toolCallId: string) => AsyncGenerator<Broadcast, ToolResultEnvelope>,
  ): AsyncGenerator<Broadcast, ToolResultEnvelope> {
    if (given.isNamed) return yield* run(given.toolCallId);
    const key = this.#keyOf(given);
    const known = this.#known(key, given);
    try {
      const toolCallId = await (known ?? this.#keep(key, given, this.#first(key, given)));
      const result = yield* run(toolCallId);
      if (known !== undefined || toolCallId !== given.toolCallId || !isReplay(result)) return result;
      const other = await this.#keep(key, given, this.#second(key, given));
      return other === toolCallId ? result : yield* run(other);
    } finally {
      this.#see(key);
    }
  }

  #known(key: string, { held, answer }: GivenCall): Promise<string> | undefined {
    return (held && this.#held.get(held)) ?? answer?.names.get(key);
  }

  #keep(key: string, { held, answer }: GivenCall, name: Promise<string>): Promise<string> {
    if (held !== undefined) this.#held.set(held, name);
    answer?.names.set(key, name);
    // While Redis is out of reach there is no name: the next try asks anew.
    name.catch(() => {
      if (held !== undefined) this.#held.delete(held);
      answer?.names.delete(key);
    });
    return name;
  }

  async #first(key: string, given: GivenCall): Promise<string> {
    return this.#seen.has(key) ? this.#another(key, given) : given.toolCallId;
  }

  /** The ID has a call that ended before. */
  async #second(key: string, given: GivenCall): Promise<string> {
    if (given.answer?.isLater === true) return this.#another(key, given);
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
    this.#seen.delete(key);
    this.#seen.add(key);
    if (this.#seen.size > MAX_SEEN) for (const oldest of this.#seen.keys()) return void this.#seen.delete(oldest);
  }
}

/** A model's ID with what tells its answer apart, as an identifier. */
export function markedId(toolCallId: string, mark: string): string {
  return identifierOf(`${toolCallId}#${mark}`);
}

/** Gateways write more into a call's ID than an identifier holds, such as the signature of a thought. */
export function identifierOf(toolCallId: string): string {
  return identifierSchema.safeParse(toolCallId).success ? toolCallId : digest(toolCallId);
}

function isReplay({ cache }: ToolResultEnvelope): boolean {
  return cache?.matchedOn === 'completed';
}
