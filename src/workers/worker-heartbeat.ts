/** Publishes this worker's tools and heartbeat to the fleet, and tracks the other workers. */
import { hostname } from 'node:os';
import type { Signatures } from '../shared/signing/signatures.ts';
import type { Backend } from '../shared/store/backend.ts';
import {
  type CatalogueContent,
  type PublishedTool,
  publishedToolId,
  runsAsPublished,
  type WorkerRecord,
} from '../shared/store/fleet/catalogue.ts';
import { PAWL_VERSION } from '../shared/store/redis/own-files.ts';
import type { Logger } from '../shared/telemetry/log.ts';
import { qualifiedName, type Tier } from '../shared/tools/tool.ts';

interface WorkerHeartbeatDeps extends Pick<WorkerRecord, 'tiers' | 'concurrency' | 'startedAtMs' | 'unconfined'> {
  readonly backend: Backend;
  readonly workerId: string;
  readonly log: Logger;
  readonly published: readonly PublishedTool[];
  running(): number;
  /** Kinds of declared tools that this worker can run. */
  kinds(): NonNullable<WorkerRecord['kinds']>;
  /** Bounds the delays in the queues, which may last for too long. */
  boundDelays(): Promise<void>;
}

export class WorkerHeartbeat {
  readonly #deps: WorkerHeartbeatDeps;
  /** Other living workers. */
  #peers: CatalogueContent['workers'] = [];
  /** The number of living workers of each tier, this one included. */
  readonly #workersOf = new Map<Tier, number>();
  #published = false;
  #draining = false;

  constructor(deps: WorkerHeartbeatDeps) {
    this.#deps = deps;
  }

  /** The number of living workers that fetch from a tier's queues, this one included. */
  workersOf(tier: Tier): number {
    return this.#workersOf.get(tier) ?? 1;
  }

  othersWith(publishedTool: string): readonly string[] {
    return this.#peers.filter(({ tools }) => tools.includes(publishedTool)).map(({ id }) => id);
  }

  async publish(): Promise<void> {
    const { backend, log, published, workerId } = this.#deps;
    const drifted = await this.#publish(published);
    for (const tool of drifted) {
      const redefined = {
        tool: qualifiedName(tool),
        kind: 'worker',
        action: 'redefined',
        definition: tool.definition,
      } as const;
      void backend.audit({ type: 'registry-changed', ...redefined, by: `worker ${workerId}` });
      log.warn(
        { event: 'definition_drift', tool: publishedToolId(tool) },
        'another worker published this tool and version with a different definition; the latest one is offered',
      );
    }
    this.#published = true;
    await this.#beat();
    // Before this heartbeat other workers did not know these tools of this worker, so one may have restored its own definition.
    if (drifted.length > 0) await this.#publish(drifted);
    await this.learnPeers();
  }

  /** Publishes again after an outage of Redis, which may have lost this worker's records. */
  async republish(): Promise<void> {
    if (!this.#published) return;
    await this.renewPublished();
    await this.beat();
  }

  /** Renews the published tools before they expire in the catalogue. */
  async renewPublished(): Promise<void> {
    if (this.#draining) return;
    const { backend, published } = this.#deps;
    const content = await backend.catalogue.read();
    await this.#publish(published.filter((tool) => !this.#isRedefined(tool, content)));
  }

  async #publish(tools: readonly PublishedTool[]): Promise<readonly PublishedTool[]> {
    const { backend } = this.#deps;
    const nowMs = await backend.ledger.now();
    return backend.catalogue.publish(tools.map((tool) => ({ ...tool, seenAtMs: nowMs })));
  }

  /** Whether a living worker has published a later definition of the same version, which then stays published. */
  #isRedefined(tool: PublishedTool, { tools, workers }: CatalogueContent): boolean {
    const published = publishedVersion(tool, tools);
    return (
      published !== undefined &&
      published.workers > 0 &&
      published.definition !== tool.definition &&
      workers.some((worker) => worker.id !== this.#deps.workerId && runsAsPublished(worker, published))
    );
  }

  async beat(): Promise<void> {
    // If Redis has lost the heartbeat, it has lost the tools as well; if its clock was set, they seem to have expired.
    if (await this.#beat()) await Promise.all([this.renewPublished(), this.#deps.boundDelays()]);
  }

  /** Offers nothing from here on. Returns whether the worker stays listed, because attempts run. */
  async drain(): Promise<boolean> {
    const { backend, workerId, running } = this.#deps;
    this.#draining = true;
    const staysListed = running() > 0;
    await (staysListed ? this.#beat(true) : backend.catalogue.leave(workerId));
    return staysListed;
  }

  #beat(changed = false): Promise<boolean> {
    const { backend, workerId, tiers, concurrency, published, startedAtMs, unconfined = [] } = this.#deps;
    const record: WorkerRecord = {
      id: workerId,
      host: hostname(),
      pid: process.pid,
      tiers,
      concurrency,
      running: this.#deps.running(),
      tools: published.map(publishedToolId),
      definitions: published.map(({ definition }) => definition),
      kinds: this.#deps.kinds(),
      ...(unconfined.length === 0 ? {} : { unconfined }),
      ...(this.#draining && { tiers: [], tools: [], definitions: [], kinds: [], draining: true }),
      startedAtMs,
      pawlVersion: PAWL_VERSION,
      signing: backend.signatures.fingerprints,
      ...tierSigning(backend.signatures, tiers),
      clockAheadMs: backend.clock.ownAheadMs,
    };
    return backend.catalogue.beat(record, changed);
  }

  async learnPeers(): Promise<void> {
    const { backend, workerId, published } = this.#deps;
    const content = await backend.catalogue.read();
    const { tools, workers } = content;
    for (const tier of this.#deps.tiers)
      this.#workersOf.set(tier, Math.max(1, workers.filter(({ tiers }) => tiers.includes(tier)).length));
    this.#peers = workers.filter(({ id }) => id !== workerId);
    // The worker of another definition has stopped: calls must be validated against a definition that a worker runs.
    const abandoned = published.filter(
      (tool) => publishedVersion(tool, tools)?.definition !== tool.definition && !this.#isRedefined(tool, content),
    );
    if (abandoned.length > 0) await this.#publish(abandoned);
  }
}

function publishedVersion(tool: PublishedTool, tools: CatalogueContent['tools']) {
  return tools.find((published) => publishedToolId(published) === publishedToolId(tool));
}

/** The fingerprints of the keys that tiers have of their own. */
function tierSigning(signatures: Signatures, tiers: readonly Tier[]): Pick<WorkerRecord, 'tierSigning'> {
  const entries = tiers.flatMap((tier) => {
    const own = signatures.scope(tier);
    return own === undefined ? [] : [[tier, own.fingerprints] as const];
  });
  return entries.length === 0 ? {} : { tierSigning: Object.fromEntries(entries) };
}
