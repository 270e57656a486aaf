/** The catalogue of the fleet: tools as their workers publish them, and the living workers. Producers know tools from here alone. */
import { canonicalJson, digest } from '../../schema/canonical-json.ts';
import type { Signatures } from '../../signing/signatures.ts';
import { type AnyTool, qualifiedName, TIERS, type Tier, type ToolReference } from '../../tools/tool.ts';
import { defined } from '../../util/json/omit-undefined.ts';
import { type Redis, serverTimeMs } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';
import { signedText, splitSigned } from '../signing/signed-text.ts';
import { parsePublishedTool, parseWorkerRecord } from './published-tools.ts';

export const HEARTBEAT_MS = 5_000;
/** A worker without a heartbeat for this long counts as dead. */
const WORKER_SILENCE_MS = 15_000;
/** The interval at which a worker publishes its tools again. */
export const RENEWAL_MS = 60_000;
/** Heartbeats are not signed, so they count for a published tool only while its signed time is younger than this. */
const RENEWED_WITHIN_MS = 3 * RENEWAL_MS;
/** Each call stores the digest, so it is short: 72 bits are enough to distinguish definitions. */
const DEFINITION_LENGTH = 12;
/** Published tools that no worker has renewed for this long are forgotten. */
const PUBLISHED_TTL_MS = 24 * 3_600_000;

/** A tool as its workers publish it. What is usual is absent: no examples, a function, parallel calls, `BestEffort`. */
export interface PublishedTool
  extends Pick<
      AnyTool,
      'name' | 'namespace' | 'version' | 'title' | 'description' | 'icon' | 'tier' | 'effects' | 'circuit'
    >,
    Pick<AnyTool, 'annotations' | 'inputSchema' | 'outputSchema' | 'timeoutMs' | 'budget'>,
    Partial<Pick<AnyTool, 'examples' | 'variant' | 'parallel' | 'trustClass'>> {
  readonly previews?: boolean;
  readonly compensates?: boolean;
  /** The digest of all fields above: published tools of one name and version with different digests have diverged. */
  readonly definition: string;
  readonly seenAtMs: number;
}

export interface WorkerRecord {
  readonly id: string;
  readonly host: string;
  readonly pid: number;
  readonly tiers: readonly Tier[];
  readonly concurrency: number;
  readonly running: number;
  /** `namespace.name@version`. */
  readonly tools: readonly string[];
  /** Digests of these definitions, in the same order; absent in workers that do not report them. */
  readonly definitions?: readonly string[];
  /** Kinds of declared tools that it can run; absent for none. */
  readonly kinds?: readonly string[];
  /** The tools whose programs would run outside of a sandbox, because no sandbox works on this worker; absent where one does. */
  readonly unconfined?: readonly string[];
  /** It finishes what it runs, serves no tier and offers no tool. */
  readonly draining?: boolean;
  readonly startedAtMs: number;
  readonly pawlVersion: string;
  /** The fingerprints of its signing keys (`keyFingerprints`); empty without keys. */
  readonly signing?: readonly string[];
  /** The same of the keys that its tiers have of their own; absent for none. */
  readonly tierSigning?: Readonly<Partial<Record<Tier, readonly string[]>>>;
  /** The difference of its machine's clock to Redis' clock; positive when it is ahead. */
  readonly clockAheadMs?: number;
}

/** The tools and workers of the fleet at one time. */
export interface CatalogueContent {
  readonly tools: readonly (PublishedTool & { readonly workers: number })[];
  readonly workers: readonly (WorkerRecord & { readonly seenAtMs: number })[];
}

export function publishedToolId(tool: ToolReference & { readonly version: string }): string {
  return `${qualifiedName(tool)}@${tool.version}`;
}

export function publishedTool(tool: AnyTool, seenAtMs: number): PublishedTool {
  const { name, namespace, version, description, tier, effects, annotations, inputSchema, timeoutMs, circuit } = tool;
  const { outputSchema, title, icon, examples, variant, parallel, budget, trustClass, preview, compensate } = tool;
  const content = {
    ...{ name, namespace, version, description, tier, effects, annotations, inputSchema, timeoutMs, circuit },
    ...defined({ outputSchema, title, icon, budget }),
    ...(examples.length === 0 ? {} : { examples }),
    ...(variant.type === 'function' ? {} : { variant }),
    ...(parallel ? {} : { parallel }),
    ...(trustClass === 'BestEffort' ? {} : { trustClass }),
    ...(preview !== undefined && { previews: true }),
    ...(compensate !== undefined && { compensates: true }),
  };
  return { ...content, definition: definitionOf(content), seenAtMs };
}

function definitionOf(content: Omit<PublishedTool, 'definition' | 'seenAtMs'>): string {
  return digest(canonicalJson(content)).slice(0, DEFINITION_LENGTH);
}

/** Whether a worker runs a tool in its published definition. A worker that does not report definitions counts as one. */
export function runsAsPublished({ tools, definitions }: WorkerRecord, published: PublishedTool): boolean {
  const index = tools.indexOf(publishedToolId(published));
  return index !== -1 && (definitions === undefined || definitions[index] === published.definition);
}

/**
 * Whether a tool is abandoned: no worker has offered it for `graceMs`, although its tier had workers. It was renamed or removed, and its
 * calls would never run. In a tier without workers, such as one that was scaled to zero, a call brings them back.
 */
export function isAbandoned(
  published: CatalogueContent['tools'][number],
  workers: CatalogueContent['workers'],
  graceMs: number,
): boolean {
  if (published.workers > 0) return false;
  return workers.some(
    ({ tiers, seenAtMs }) => tiers.includes(published.tier) && seenAtMs - published.seenAtMs > graceMs,
  );
}

const heartbeatScript = new Script(new URL('./heartbeat.lua', import.meta.url));

export interface CatalogueOptions {
  /** Default: nothing is signed, and everything is accepted. */
  readonly signatures?: Signatures;
  /** The tiers whose tools are read: a worker needs those of its own, and has no keys for others. Default: all. */
  readonly tiers?: readonly Tier[];
}

export class Catalogue extends FleetRecords {
  readonly #tiers: readonly Tier[];
  /** The published tools of the last read, by field and text: most of them do not change. */
  #verifiedTools = new Map<string, PublishedTool | undefined>();
  /** The newest tool of the highest tier by name. Its tier owns the name as long as the tool would be kept, also when its line is deleted. */
  readonly #owners = new Map<string, Owner>();

  constructor(redis: Redis, prefix: string, { signatures, tiers = TIERS }: CatalogueOptions = {}) {
    super(redis, prefix, signatures);
    this.#tiers = tiers;
  }

  /** Publishes a worker's tools. Returns those that another worker has published with a different definition. */
  async publish(tools: readonly PublishedTool[]): Promise<readonly PublishedTool[]> {
    if (tools.length === 0) return [];
    const fields = tools.map((published) => this.#fieldOf(published));
    const storedTools = await this.redis.hmget(this.keys.tools, ...fields);
    const signed = tools.map((published, index) => this.#sign(fields[index] ?? '', published));
    await this.redis.hset(this.keys.tools, Object.fromEntries(fields.map((field, index) => [field, signed[index]])));
    return tools.filter((published, index) => {
      const stored = storedTools[index];
      const known = typeof stored === 'string' ? this.#verify(fields[index] ?? '', stored) : undefined;
      return known !== undefined && known.definition !== published.definition;
    });
  }

  /**
   * Renews the worker's record. `changed`: it offers something else than before. Returns whether the worker is new to the others, also
   * because Redis' clock was set.
   */
  async beat(worker: WorkerRecord, changed = false): Promise<boolean> {
    const [, joined] = await heartbeatScript.run(
      this.redis,
      [this.keys.workers, this.keys.workerLoads],
      [worker.id, JSON.stringify(worker), WORKER_SILENCE_MS, this.channel, changed ? '1' : ''],
    );
    return joined === 1;
  }

  async leave(workerId: string): Promise<void> {
    await heartbeatScript.run(
      this.redis,
      [this.keys.workers, this.keys.workerLoads],
      [workerId, '', WORKER_SILENCE_MS, this.channel],
    );
  }

  async read(): Promise<CatalogueContent> {
    const [storedTools, heartbeats, records, nowMs] = await Promise.all([
      this.redis.hgetall(this.keys.tools),
      this.redis.zrange(this.keys.workers, '0', '-1', 'WITHSCORES'),
      this.redis.hgetall(this.keys.workerLoads),
      serverTimeMs(this.redis),
    ]);
    const workers: (WorkerRecord & { seenAtMs: number })[] = [];
    for (let index = 0; index < heartbeats.length; index += 2) {
      const record = parseWorkerRecord(records[heartbeats[index] ?? ''] ?? '') as WorkerRecord | undefined;
      const seenAtMs = Number(heartbeats[index + 1]);
      if (record !== undefined && seenAtMs > nowMs - WORKER_SILENCE_MS) workers.push({ ...record, seenAtMs });
    }
    const oldestMs = nowMs - PUBLISHED_TTL_MS;
    const kept = this.#verifyAll(Object.entries(storedTools)).filter(({ seenAtMs }) => seenAtMs > oldestMs);
    const tools = this.#dropNameConflicts(newestPublished(kept), oldestMs).map((published) => ({
      ...published,
      workers:
        published.seenAtMs > nowMs - RENEWED_WITHIN_MS
          ? workers.filter((worker) => worker.tools.includes(publishedToolId(published))).length
          : 0,
    }));
    return { tools, workers };
  }

  #verifyAll(lines: readonly (readonly [field: string, text: string])[]): PublishedTool[] {
    const known = new Map<string, PublishedTool | undefined>();
    for (const [field, text] of lines) {
      const line = `${field}\n${text}`;
      known.set(line, this.#verifiedTools.has(line) ? this.#verifiedTools.get(line) : this.#verify(field, text));
    }
    this.#verifiedTools = known;
    return [...known.values()].filter((published) => published !== undefined);
  }

  /**
   * The field of a published tool. Each signing key has fields of its own: a worker with other keys, such as one of another tier or one
   * that was set up wrongly, must not replace a tool that this fleet's workers publish.
   */
  #fieldOf(published: PublishedTool): string {
    const [fingerprint] = this.#signaturesOf(published.tier).fingerprints;
    return [this.#nameOf(published), ...(fingerprint === undefined ? [] : [fingerprint])].join(' ');
  }

  /** The part of the field that all keys share. */
  #nameOf(published: PublishedTool): string {
    const id = publishedToolId(published);
    return this.#hasOwnKey(published.tier) ? `${id} ${published.tier}` : id;
  }

  #sign(field: string, published: PublishedTool): string {
    return signedText(this.#signaturesOf(published.tier), 'tool', field, published);
  }

  /**
   * A published tool that a worker of its tier signed; undefined for any other line. Its digest is computed again from its content, so that
   * an approval names the definition that the approver saw. Workers compare it with their own, and void an approval of another one.
   */
  #verify(field: string, stored: string): PublishedTool | undefined {
    const { signature, text } = splitSigned(stored);
    const parsed = parsePublishedTool(text) as PublishedTool | undefined;
    if (parsed === undefined) return this.#reportRefused(field, 'is not one', stored);
    if (!this.#tiers.includes(parsed.tier)) return undefined;
    const name = this.#nameOf(parsed);
    if (field !== name && !field.startsWith(`${name} `))
      return this.#reportRefused(field, 'does not stand under its own name and keys', stored);
    if (!this.#signaturesOf(parsed.tier).matches('tool', field, text, signature))
      return this.#reportRefused(field, `is not signed by a worker of the ${parsed.tier} tier`, text);
    const { definition: _, seenAtMs, ...content } = parsed;
    return { ...content, definition: definitionOf(content), seenAtMs };
  }

  #reportRefused(field: string, fault: string, ...content: readonly string[]): undefined {
    const reason = `the published tool ${field} ${fault}`;
    this.signatures.refuseOnce({ kind: 'tool', id: [field], reason }, field, fault, ...content);
  }

  #signaturesOf(tier: Tier): Signatures {
    return this.signatures.scope(tier) ?? this.signatures;
  }

  /** Whether only this tier's workers have the keys that sign its tools. */
  #hasOwnKey(tier: Tier): boolean {
    return this.signatures.scope(tier) !== undefined;
  }

  /**
   * When tiers have keys of their own, a name that several tiers publish belongs to the highest one: no worker of a lower tier gets its
   * calls.
   */
  #dropNameConflicts(tools: readonly PublishedTool[], oldestMs: number): PublishedTool[] {
    if (!TIERS.some((tier) => this.#hasOwnKey(tier))) return [...tools];
    noteOwners(this.#owners, tools, oldestMs);
    return tools.filter((published) => {
      const tier = this.#owners.get(qualifiedName(published))?.tier ?? published.tier;
      if (tier === published.tier || !this.#hasOwnKey(tier)) return true;
      this.#reportRefused(this.#fieldOf(published), `has the name of a tool of the ${tier} tier`);
      return false;
    });
  }
}

type Owner = Pick<PublishedTool, 'tier' | 'seenAtMs'>;

/** Notes who owns the name of each tool, and drops the owners that were last seen before `oldestMs`. */
export function noteOwners(owners: Map<string, Owner>, tools: readonly PublishedTool[], oldestMs: number): void {
  for (const [name, { seenAtMs }] of owners) if (seenAtMs <= oldestMs) owners.delete(name);
  for (const { tier, seenAtMs, ...tool } of tools) {
    const name = qualifiedName(tool);
    const known = owners.get(name);
    const above = known === undefined ? 1 : TIERS.indexOf(tier) - TIERS.indexOf(known.tier);
    if (above > 0 || (above === 0 && seenAtMs > (known?.seenAtMs ?? 0))) owners.set(name, { tier, seenAtMs });
  }
}

/** While keys are rotated, workers with the old one and with the new one publish the same tools. */
function newestPublished(tools: readonly PublishedTool[]): PublishedTool[] {
  const newest = new Map<string, PublishedTool>();
  for (const published of tools) {
    const id = `${publishedToolId(published)} ${published.tier}`;
    const known = newest.get(id);
    if (known === undefined || known.seenAtMs <= published.seenAtMs) newest.set(id, published);
  }
  return [...newest.values()];
}
