/**
 * Names the calls of a model. An ID names a call within one response, because many model servers number the calls of each response from
 * the start. A call of a later response must run; the same response, run again, must find its own calls.
 *
 * These distinguish two responses, in this order: the object that holds the call, the turn, and the library's name of the response.
 * Without any of these, an ID that comes to the same adapter again belongs to a later response. An ID that comes to a new adapter may
 * belong to a response that another process began, so it names the newest call. After a response that failed as a whole, such as in an
 * outage, the caller has no answers and may run it again: a call of its names is the same if it ended after that response began.
 */
import { identifierSchema, MAX_TURN_ID, type ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import type { ToolReference } from '../../shared/tools/tool.ts';
import { uuidv7 } from '../../shared/util/time.ts';
import type { Session } from '../sessions/session.ts';

/** So many recent IDs are remembered: a model that repeats an ID does so soon. */
const MAX_SEEN = 10_000;

/** One response of a model, whose calls came together. */
export interface ModelResponse {
  /** The adapter had another response before, so this one cannot be a response that a restart runs again. */
  readonly isLater: boolean;
  readonly names: CallNames;
  readonly startedAtMs: number;
  /** The response before, if it failed as a whole. This one may be the same, run again. */
  readonly failed: FailedResponse | undefined;
}

type FailedResponse = Pick<ModelResponse, 'names' | 'startedAtMs'>;

/** The names of calls, by their ID and parameters. */
type CallNames = Map<string, Promise<string>>;

interface ModelCall extends ToolReference {
  readonly toolCallId: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly turnId?: string | undefined;
  /** The turn or the ID belongs to this response alone. */
  readonly isNamed: boolean;
  /** The object that holds the call or identifies its response, as the library gave it. */
  readonly callObject?: object | undefined;
  readonly response?: ModelResponse | undefined;
}

export class ModelCalls {
  readonly #session: Session;
  readonly #namesByObject = new WeakMap<object, CallNames>();
  /** The names of calls that ended under them here. */
  readonly #provenNames = new WeakSet<Promise<string>>();
  /** Calls that ended here; the oldest are dropped. */
  readonly #seenKeys = new Set<string>();
  #responses = 0;
  #failed: FailedResponse | undefined;

  constructor(session: Session) {
    this.#session = session;
  }

  /** Runs the calls of one response. */
  async respond<Answer>(run: (response: ModelResponse) => Promise<Answer>): Promise<Answer> {
    const isLater = this.#responses > 0;
    const failed = this.#failed;
    // The failed response may be this one, and calls of it may still run: both give them their names.
    const names = failed?.names ?? new Map();
    const response: ModelResponse = { isLater, names, startedAtMs: performance.now(), failed };
    this.#responses += 1;
    this.#failed = undefined;
    try {
      return await run(response);
    } catch (error) {
      this.#failed = failed ?? response;
      throw error;
    }
  }

  /**
   * Runs a call under its name. If that name proves to belong to a call of an earlier response, the call runs under another one. `run`
   * takes the `toolCallId` to submit.
   */
  async *run<Notice>(
    call: ModelCall,
    run: (toolCallId: string) => AsyncGenerator<Notice, ToolResultEnvelope>,
  ): AsyncGenerator<Notice, ToolResultEnvelope> {
    if (call.isNamed) return yield* run(call.toolCallId);
    const key = this.#keyOf(call);
    const cachedName = this.#cachedName(key, call);
    const isKnown = cachedName !== undefined && this.#provenNames.has(cachedName);
    const name = this.#cacheName(key, call, cachedName ?? this.#initialName(key, call));
    const toolCallId = await name;
    const submittedAtMs = performance.now();
    let result = yield* run(toolCallId);
    if (toolCallId === call.toolCallId && isReplay(result) && !isOfFailed(result, submittedAtMs, key, call)) {
      const isEarlier = !isKnown && call.response?.isLater === true;
      // The same call twice in one response: the other one may have got the new name.
      if (isEarlier && this.#cachedName(key, call) === name) await this.#cacheName(key, call, this.#newName(key, call));
      const newCallId = (await this.#cachedName(key, call)) ?? toolCallId;
      if (newCallId !== toolCallId) result = yield* run(newCallId);
    }
    this.#provenNames.add(this.#cacheName(key, call, this.#cachedName(key, call) ?? name));
    this.#markSeen(key);
    return result;
  }

  #cachedName(key: string, call: ModelCall): Promise<string> | undefined {
    const names = this.#namesOf(call).flatMap((each) => each.get(key) ?? []);
    return names.find((name) => this.#provenNames.has(name)) ?? names.at(-1);
  }

  #namesOf({ callObject, response }: ModelCall): CallNames[] {
    const lists = response === undefined ? [] : [response.names];
    if (callObject === undefined) return lists;
    const names: CallNames = this.#namesByObject.get(callObject) ?? new Map();
    this.#namesByObject.set(callObject, names);
    return [names, ...lists];
  }

  #cacheName(key: string, call: ModelCall, name: Promise<string>): Promise<string> {
    const lists = this.#namesOf(call);
    for (const names of lists) names.set(key, name);
    // A failure, such as Redis being out of reach, must not stay: the next try asks again.
    name.catch(() => {
      for (const names of lists) names.delete(key);
    });
    return name;
  }

  async #initialName(key: string, call: ModelCall): Promise<string> {
    if (this.#seenKeys.has(key)) return this.#newName(key, call);
    if (call.response?.isLater === true) return call.toolCallId;
    // The newest name comes first: the record of the ID's first call may have expired, or its key may be free again after a failure.
    return (await this.#session.repeatedCalls?.latest(key)) ?? call.toolCallId;
  }

  async #newName(key: string, { toolCallId }: ModelCall): Promise<string> {
    const name = markedId(toolCallId, uuidv7());
    await this.#session.repeatedCalls?.remember(key, name);
    return name;
  }

  #keyOf({ toolCallId, namespace, name, params, turnId }: ModelCall): string {
    const { tenantId = null, sessionKey, actorId } = this.#session.record;
    const origin = canonicalJson([tenantId, sessionKey, actorId, namespace, name, toolCallId, turnId ?? null]);
    // Written by themselves, parameters that are not JSON are refused with their own path.
    return digest(`${origin.slice(0, -1)},${canonicalJson(params)}]`);
  }

  #markSeen(key: string): void {
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

/** The turn as an identifier. Some gateways write the route of a request into the name of its response. */
export function turnIdOf(turnId: string): string {
  return turnId.length <= MAX_TURN_ID ? turnId : digest(turnId);
}

/** Whether the replayed call ended after the failed response began, so that it is that one's. */
function isOfFailed(
  { cache }: ToolResultEnvelope,
  submittedAtMs: number,
  key: string,
  { response }: ModelCall,
): boolean {
  const failed = response?.failed;
  if (failed === undefined || cache === undefined || !failed.names.has(key)) return false;
  // Its age is read after the submission: an earlier call is always older than this.
  return cache.ageMs < submittedAtMs - failed.startedAtMs;
}

function isReplay({ cache }: ToolResultEnvelope): boolean {
  return cache?.matchedOn === 'completed';
}
