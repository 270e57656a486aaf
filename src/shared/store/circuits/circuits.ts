/**
 * The fleet's circuits in Redis (`circuit-breaker.ts` has the rules). A circuit applies to all shards of a tier, and is stored in the first.
 *
 * In a cluster, a script of another shard cannot read it. There, each other shard has a copy, which is updated right after a change. An
 * attempt that starts in between still sees the old copy; counting its end detects that and refreshes the copy.
 */
import {
  type Circuit,
  type CircuitSample,
  CLOSED_CIRCUIT,
  FORCED_BY_OPERATOR,
  type Sample,
} from '../../circuits/circuit-breaker.ts';
import type { Signatures } from '../../signing/signatures.ts';
import { isObject, parseJson } from '../../util/json/json-types.ts';
import type { Shards } from '../queues/shards.ts';
import type { CircuitBroadcast } from '../redis/broadcasts.ts';
import { isClustered, type Redis } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import type { Partition } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';

const failureScript = new Script(new URL('./circuit-failure.lua', import.meta.url), [], 'once');
const changeScript = new Script(new URL('./circuit-change.lua', import.meta.url), [], 'once');
const successScript = new Script(new URL('./circuit-success.lua', import.meta.url));
const copyScript = new Script(new URL('./circuit-copy.lua', import.meta.url));
const STORED_CIRCUIT = /^([1-9]\d{0,14})\|([A-Z_]+)\|\{/;
/** The numbers of each state, beside the epoch. */
const NUMBERS: ReadonlyMap<string, readonly string[]> = new Map([
  ['CLOSED', []],
  ['OPEN', ['openedAtMs', 'cooldownMs', 'failures']],
  ['HALF_OPEN', ['openedAtMs', 'cooldownMs', 'successes']],
  ['FORCED_OPEN', []],
]);
/** The limit of one partition. */
const MAX_CHANGES = 500;
const CHANGES_TTL_MS = 7 * 24 * 3_600_000;

export interface CircuitChange {
  readonly key: string;
  readonly from: Circuit['state'];
  readonly to: Circuit['state'];
  readonly atMs: number;
  /** The reason of the operator who forced it. */
  readonly reason?: string;
}

/** A circuit as it is stored and broadcast: the signature of an operator's reason, where there is one. */
type SignedCircuit = Circuit & { readonly signature?: string };

export interface CircuitAt {
  readonly partition: Partition;
  readonly key: string;
}

export class Breakers extends FleetRecords {
  readonly #shards: Pick<Shards, 'partitions'> | undefined;
  /** Successes that are not counted yet, by window: those that come during a write are written together. */
  readonly #successes = new Map<string, { count: number }>();

  constructor(redis: Redis, prefix: string, signatures?: Signatures, shards?: Pick<Shards, 'partitions'>) {
    super(redis, prefix, signatures);
    this.#shards = shards;
  }

  async read(partition: Partition, key: string): Promise<Circuit> {
    const stored = await this.redis.hget(this.partitionKeys(partition).circuits, key);
    return this.verified(key, parseCircuit(stored ?? ''));
  }

  /** Callers read why an operator forced a circuit open: a reason that this fleet did not sign is replaced. */
  verified(key: string, circuit: SignedCircuit): Circuit {
    if (circuit.state !== 'FORCED_OPEN') return circuit;
    const { signature = '', ...forced } = circuit;
    const isText = typeof forced.reason === 'string' && typeof signature === 'string';
    const isSigned = isText && this.signatures.verify('circuit', key, forced.reason, signature);
    return isSigned ? forced : { ...forced, reason: FORCED_BY_OPERATOR };
  }

  #sign(key: string, circuit: Circuit): SignedCircuit {
    if (circuit.state !== 'FORCED_OPEN') return circuit;
    return { ...circuit, signature: this.signatures.sign('circuit', key, circuit.reason) };
  }

  /** All circuits of a partition that ever left CLOSED. */
  async list(partition: Partition): Promise<ReadonlyMap<string, Circuit>> {
    const stored = await this.redis.hgetall(this.partitionKeys(partition).circuits);
    return new Map(Object.entries(stored).map(([key, raw]) => [key, this.verified(key, parseCircuit(raw))]));
  }

  /**
   * Counts a failure, and returns the input of the rule that opens the circuit. `successesBefore` are those of this worker that were
   * not counted yet.
   */
  async addFailure(
    partition: Partition,
    sample: CircuitSample,
    successesBefore = 0,
  ): Promise<{ readonly nowMs: number; readonly circuit: Circuit; readonly window: readonly Sample[] }> {
    const keys = this.partitionKeys(partition);
    const [nowMs, raw, ...samples] = await failureScript.run(
      this.redis,
      [keys.circuits, keys.window(sample.circuit)],
      [JSON.stringify(sample), Math.min(successesBefore, sample.windowSize)],
    );
    await this.#refresh(partition, sample, raw as string);
    return {
      nowMs: Number(nowMs),
      circuit: parseCircuit(raw as string),
      window: samples.map((stored) => parseSample(stored as string)),
    };
  }

  async history(partition: Partition, limit: number): Promise<CircuitChange[]> {
    const stored = await this.redis.lrange(this.partitionKeys(partition).circuitHistory, 0, limit - 1);
    return stored.flatMap((text) => {
      const bar = text.indexOf('|');
      const change = parseJson(text.slice(bar + 1)) as Omit<CircuitChange, 'atMs'> | undefined;
      return isObject(change) ? [{ ...change, atMs: Number(text.slice(0, bar)) }] : [];
    });
  }

  async window(partition: Partition, key: string): Promise<readonly Sample[]> {
    return (await this.redis.lrange(this.partitionKeys(partition).window(key), 0, -1)).map(parseSample);
  }

  /** Replaces `from` by `next`. Returns the circuit as it then is, which differs from `next` when another process was faster. */
  async change(
    { partition, key }: CircuitAt,
    from: Circuit,
    next: Circuit,
    retryAfterMs: number,
  ): Promise<{ readonly changed: boolean; readonly circuit: Circuit }> {
    const keys = this.partitionKeys(partition);
    const circuit = this.#sign(key, next);
    const broadcast: CircuitBroadcast = { type: 'circuit', partition, key, circuit, retryAfterMs };
    const reason = 'reason' in next ? next.reason : undefined;
    const change = { key, from: from.state, to: next.state, ...(reason !== undefined && { reason }) };
    const [code, raw] = await changeScript.run(
      this.redis,
      [keys.circuits, keys.window(key), keys.circuitHistory],
      [
        key,
        from.epoch,
        formatCircuit(circuit),
        this.channel,
        JSON.stringify(broadcast),
        JSON.stringify(change),
        MAX_CHANGES,
        CHANGES_TTL_MS,
      ],
    );
    await this.#copy(partition, key, raw as string);
    return { changed: code === 'changed', circuit: this.verified(key, parseCircuit(raw as string)) };
  }

  /**
   * Counts a success in a script of its own: in a cluster, when the call is in another shard. The write is deferred and notifies no process.
   */
  async addSuccessApart(partition: Partition, sample: CircuitSample): Promise<void> {
    const keys = this.partitionKeys(partition);
    const window = keys.window(sample.circuit);
    const waiting = this.#successes.get(window);
    if (waiting !== undefined) {
      waiting.count = Math.min(waiting.count + 1, sample.windowSize);
      return;
    }
    const added = { count: 1 };
    this.#successes.set(window, added);
    try {
      while (added.count > 0) {
        const { count } = added;
        added.count = 0;
        const args = [JSON.stringify(sample), count];
        const [raw] = await successScript.run(this.redis, [keys.circuits, window], args);
        await this.#refresh(partition, sample, raw as string);
      }
    } finally {
      this.#successes.delete(window);
    }
  }

  /** Copies all circuits of a tier to its other shards, after shards were added. */
  async spread(partition: Partition): Promise<void> {
    if (!isClustered(this.redis)) return;
    const stored = await this.redis.hgetall(this.partitionKeys(partition).circuits);
    await Promise.all(Object.entries(stored).map(([key, raw]) => this.#copy(partition, key, raw)));
  }

  /** Updates the copies if the attempt started under an older epoch: then the copy of its shard is old. */
  async #refresh(partition: Partition, { circuit, epoch }: CircuitSample, raw: string): Promise<void> {
    if (parseCircuit(raw).epoch !== epoch) await this.#copy(partition, circuit, raw);
  }

  async #copy({ tier }: Partition, key: string, raw: string): Promise<void> {
    if (raw === '' || !isClustered(this.redis)) return;
    const otherShards = (this.#shards?.partitions([tier]) ?? []).filter(({ shard }) => shard > 0);
    const args = [key, parseCircuit(raw).epoch, raw];
    await Promise.all(
      otherShards.map((partition) => copyScript.run(this.redis, [this.partitionKeys(partition).circuits], args)),
    );
  }
}

/** `epoch|STATE|json`: scripts compare the first two without parsing the rest. */
export function formatCircuit(circuit: Circuit): string {
  return `${circuit.epoch}|${circuit.state}|${JSON.stringify(circuit)}`;
}

/**
 * A text that is no circuit counts as a closed one, as in the scripts (`circuitOf`). They read its head alone: where the rest does not fit,
 * the circuit is closed in the epoch of the head, so that an attempt may start and the circuit can be changed.
 */
export function parseCircuit(raw: string): Circuit {
  const [, epochText, state = ''] = STORED_CIRCUIT.exec(raw) ?? [];
  if (epochText === undefined) return CLOSED_CIRCUIT;
  const epoch = Number(epochText);
  const circuit = parseJson(raw.slice(raw.indexOf('{')));
  const isCircuit =
    isObject(circuit) &&
    circuit['epoch'] === epoch &&
    circuit['state'] === state &&
    NUMBERS.get(state)?.every((name) => Number.isFinite(circuit[name])) === true;
  return isCircuit ? (circuit as unknown as Circuit) : { state: 'CLOSED', epoch };
}

function parseSample(text: string): Sample {
  const [atMs, ok, successes] = text.split(':');
  const before = ok === '0' && successes !== undefined ? { successesBefore: Number(successes) } : {};
  return { atMs: Number(atMs), ok: ok === '1', ...before };
}
