/**
 * Remembers the fleet's circuits (`breaker.ts` decides). One circuit holds for all shards of a tier.
 */
import { type Circuit, CLOSED_CIRCUIT, type Sample } from '../breaker.ts';
import { FleetKeys, type Place, PlaceKeys } from './keys.ts';
import { type Redis, Script } from './redis.ts';

const failureScript = new Script('circuit-failure', 2);
const changeScript = new Script('circuit-change', 3);
/** Of each place. */
const CHANGES_KEPT = 500;
const CHANGES_KEPT_MS = 7 * 24 * 3_600_000;

/** What all processes hear when a circuit changes. */
export interface CircuitNews {
  readonly type: 'circuit';
  readonly place: Place;
  readonly key: string;
  readonly circuit: Circuit;
  /** Milliseconds until a probe may run, at the time of the change. */
  readonly retryAfterMs: number;
}

/** A change of a circuit, as its history keeps it. */
export interface CircuitChange {
  readonly key: string;
  readonly from: Circuit['state'];
  readonly to: Circuit['state'];
  readonly atMs: number;
  /** Of an operator who forced it. */
  readonly reason?: string;
}

export class Breakers {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #news: string;

  constructor(redis: Redis, prefix: string) {
    this.#redis = redis;
    this.#prefix = prefix;
    this.#news = new FleetKeys(prefix).news;
  }

  #keys(place: Place): PlaceKeys {
    return new PlaceKeys(this.#prefix, place);
  }

  async read(place: Place, key: string): Promise<Circuit> {
    return parseCircuit((await this.#redis.hget(this.#keys(place).circuits, key)) ?? '');
  }

  /** All circuits of a place that ever left CLOSED. */
  async list(place: Place): Promise<ReadonlyMap<string, Circuit>> {
    const stored = await this.#redis.hgetall(this.#keys(place).circuits);
    return new Map(Object.entries(stored).map(([key, raw]) => [key, parseCircuit(raw)]));
  }

  /** Counts a failure, and returns what the rule decides on. */
  async addFailure(
    place: Place,
    key: string,
    epoch: number,
    size: number,
    windowMs: number,
  ): Promise<{ readonly nowMs: number; readonly circuit: Circuit; readonly window: readonly Sample[] }> {
    const keys = this.#keys(place);
    const [nowMs, raw, ...samples] = await failureScript.run(
      this.#redis,
      [keys.circuits, keys.window(key)],
      [key, epoch, size, windowMs],
    );
    return {
      nowMs: Number(nowMs),
      circuit: parseCircuit(raw as string),
      window: samples.map((sample) => parseSample(sample as string)),
    };
  }

  /** What became of the circuits of a place, the newest first. */
  async history(place: Place, limit: number): Promise<CircuitChange[]> {
    const stored = await this.#redis.lrange(this.#keys(place).circuitHistory, 0, limit - 1);
    return stored.map((text) => {
      const bar = text.indexOf('|');
      return { ...(JSON.parse(text.slice(bar + 1)) as Omit<CircuitChange, 'atMs'>), atMs: Number(text.slice(0, bar)) };
    });
  }

  async window(place: Place, key: string): Promise<readonly Sample[]> {
    return (await this.#redis.lrange(this.#keys(place).window(key), 0, -1)).map(parseSample);
  }

  /** Replaces `from` by `next`; the answer is the circuit as it then stands, which differs from `next` when somebody was faster. */
  async change(
    place: Place,
    key: string,
    from: Circuit,
    next: Circuit,
    retryAfterMs: number,
  ): Promise<{ readonly changed: boolean; readonly circuit: Circuit }> {
    const keys = this.#keys(place);
    const news: CircuitNews = { type: 'circuit', place, key, circuit: next, retryAfterMs };
    const reason = 'reason' in next ? next.reason : undefined;
    const change = { key, from: from.state, to: next.state, ...(reason === undefined ? {} : { reason }) };
    const [code, raw] = await changeScript.run(
      this.#redis,
      [keys.circuits, keys.window(key), keys.circuitHistory],
      [
        key,
        from.epoch,
        formatCircuit(next),
        this.#news,
        JSON.stringify(news),
        JSON.stringify(change),
        CHANGES_KEPT,
        CHANGES_KEPT_MS,
      ],
    );
    return { changed: code === 'changed', circuit: parseCircuit(raw as string) };
  }
}

/** `epoch|STATE|json`: scripts compare the first two without parsing the rest. */
function formatCircuit(circuit: Circuit): string {
  return `${circuit.epoch}|${circuit.state}|${JSON.stringify(circuit)}`;
}

export function parseCircuit(raw: string): Circuit {
  if (raw === '') return CLOSED_CIRCUIT;
  return JSON.parse(raw.slice(raw.indexOf('{'))) as Circuit;
}

function parseSample(text: string): Sample {
  const [atMs, ok] = text.split(':');
  return { atMs: Number(atMs), ok: ok === '1' };
}
