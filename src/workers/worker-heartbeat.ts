/**
 * Publishes this worker to the fleet, and follows the other workers: its tools in the catalogue, its heartbeat, its peers.
 */
import { hostname } from 'node:os';
import type { Backend } from '../shared/store/backend.ts';
import {
  type CatalogueContent,
  type PublishedTool,
  publishedToolId,
  runsAsPublished,
  type WorkerRecord,
} from '../shared/store/fleet/catalogue.ts';
import type { Logger } from '../shared/telemetry/log.ts';
import { qualifiedName, type Tier } from '../shared/tools/tool.ts';

export interface WorkerHeartbeatDeps {
  readonly backend: Backend;
  readonly workerId: string;
  readonly tiers: readonly Tier[];
  readonly concurrency: number;
  readonly pawlVersion: string;
  readonly log: Logger;
  readonly published: readonly PublishedTool[];
  readonly startedAtMs: number;
  /** How many attempts run now. */
  running(): number;
  /** Kinds of declared tools that this worker can run. */
  kinds(): NonNullable<WorkerRecord['kinds']>;
  /** IDs of the published tools whose programs would run outside of a sandbox. */
  readonly unconfined?: readonly string[];
}

export class WorkerHeartbeat {
  readonly #deps: WorkerHeartbeatDeps;
  /** Other living workers. */
  #peers: CatalogueContent['workers'] = [];
  /** How many living workers take from a tier's queue, this one included. */
  readonly #workersOf = new Map<Tier, number>();
  #published = false;

  constructor(deps: WorkerHeartbeatDeps) {
    this.#deps = deps;
  }

  /** How many living workers take from a tier's queue, this one included. */
  workersOf(tier: Tier): number {
    return this.#workersOf.get(tier) ?? 1;
  }

  /** IDs of other living workers that offer the tool too. */
  othersWith(offer: string): readonly string[] {
    return this.#peers.filter(({ tools }) => tools.includes(offer)).map(({ id }) => id);
  }

  async publish(): Promise<void> {
    const { backend, log, published, workerId } = this.#deps;
    const drifted = await backend.catalogue.publish(published);
    for (const offer of drifted) {
      const redefined = {
        tool: qualifiedName(offer),
        kind: 'worker',
        action: 'redefined',
        definition: offer.definition,
      } as const;
      void backend.audit({ type: 'registry-changed', ...redefined, by: `worker ${workerId}` });
      log.warn(
        { event: 'definition_drift', tool: publishedToolId(offer) },
        'another worker published this tool and version with a different definition; the latest one is offered',
      );
    }
    this.#published = true;
    await this.#beat();
    // Before this heartbeat no worker knew that this one publishes them, so another one may have restored its own.
    if (drifted.length > 0) await backend.catalogue.publish(drifted);
    await this.learnPeers();
  }

  /** Redis was away, and may have come back without what this worker wrote. */
  async publishAgain(): Promise<void> {
    if (!this.#published) return;
    await this.renewPublished();
    await this.beat();
  }

  /** Renews the published tools, which the catalogue would forget otherwise. */
  async renewPublished(): Promise<void> {
    const { backend, published } = this.#deps;
    const content = await backend.catalogue.read();
    await this.#publish(published.filter((offer) => !this.#isRedefined(offer, content)));
  }

  async #publish(tools: readonly PublishedTool[]): Promise<void> {
    const { backend } = this.#deps;
    const nowMs = await backend.ledger.now();
    await backend.catalogue.publish(tools.map((offer) => ({ ...offer, seenAtMs: nowMs })));
  }

  /** A later definition of the same version stays offered for as long as a living worker runs it. */
  #isRedefined(offer: PublishedTool, { tools, workers }: CatalogueContent): boolean {
    const published = publishedAs(offer, tools);
    return (
      published !== undefined &&
      published.definition !== offer.definition &&
      workers.some((worker) => worker.id !== this.#deps.workerId && runsAsPublished(worker, published))
    );
  }

  async beat(): Promise<void> {
    // Redis has lost what this worker wrote, its tools too.
    if (await this.#beat()) await this.renewPublished();
  }

  #beat(): Promise<boolean> {
    const { backend, workerId, tiers, concurrency, pawlVersion, published, startedAtMs, unconfined = [] } = this.#deps;
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
      startedAtMs,
      pawlVersion,
      signing: backend.signatures.fingerprints,
      clockAheadMs: backend.clock.ownAheadMs,
    };
    return backend.catalogue.beat(record);
  }

  async learnPeers(): Promise<void> {
    const { backend, workerId, published } = this.#deps;
    const content = await backend.catalogue.read();
    const { tools, workers } = content;
    for (const tier of this.#deps.tiers)
      this.#workersOf.set(tier, Math.max(1, workers.filter(({ tiers }) => tiers.includes(tier)).length));
    this.#peers = workers.filter(({ id }) => id !== workerId);
    // The worker that published another definition is gone. Calls must not be checked against what no worker runs.
    const abandoned = published.filter(
      (offer) => publishedAs(offer, tools)?.definition !== offer.definition && !this.#isRedefined(offer, content),
    );
    if (abandoned.length > 0) await this.#publish(abandoned);
  }
}

function publishedAs(offer: PublishedTool, tools: CatalogueContent['tools']): PublishedTool | undefined {
  return tools.find((published) => publishedToolId(published) === publishedToolId(offer));
}
