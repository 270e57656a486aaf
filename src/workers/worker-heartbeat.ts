/**
 * What the fleet knows of this worker, and it of the fleet: its tools in the catalogue, its heartbeat, and who else is there.
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
  readonly offers: readonly PublishedTool[];
  readonly startedAtMs: number;
  /** How many attempts run now. */
  running(): number;
  /** Kinds of declared tools that this worker can run. */
  kinds(): NonNullable<WorkerRecord['kinds']>;
  /** Of the offers, by their IDs, those whose programs would run outside of a sandbox. */
  readonly unconfined?: readonly string[];
}

export class WorkerHeartbeat {
  readonly #parts: WorkerHeartbeatDeps;
  /** Other living workers. */
  #peers: CatalogueContent['workers'] = [];
  /** How many living workers take from a tier's queue, this one included. */
  readonly #workersOf = new Map<Tier, number>();
  #published = false;

  constructor(parts: WorkerHeartbeatDeps) {
    this.#parts = parts;
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
    const { backend, log, offers, workerId } = this.#parts;
    const drifted = await backend.catalogue.publish(offers);
    for (const offer of drifted) {
      const told = {
        tool: qualifiedName(offer),
        kind: 'worker',
        action: 'redefined',
        definition: offer.definition,
      } as const;
      void backend.audit({ type: 'registry-changed', ...told, by: `worker ${workerId}` });
      log.warn(
        { event: 'definition_drift', tool: publishedToolId(offer) },
        'another worker published this tool and version with a different definition; the latest one is offered',
      );
    }
    this.#published = true;
    await this.#beat();
    // Before this beat nobody knew who stands for them: another worker may have put its own back.
    if (drifted.length > 0) await backend.catalogue.publish(drifted);
    await this.learnPeers();
  }

  /** Redis was away, and may have come back without what this worker told it. */
  async publishAgain(): Promise<void> {
    if (!this.#published) return;
    await this.renewPublished();
    await this.beat();
  }

  /** Keeps the offers from being forgotten. */
  async renewPublished(): Promise<void> {
    const { backend, offers } = this.#parts;
    const content = await backend.catalogue.read();
    await this.#offer(offers.filter((offer) => !this.#isRedefined(offer, content)));
  }

  async #offer(offers: readonly PublishedTool[]): Promise<void> {
    const { backend } = this.#parts;
    const nowMs = await backend.ledger.now();
    await backend.catalogue.publish(offers.map((offer) => ({ ...offer, seenAtMs: nowMs })));
  }

  /** A later definition of the same version stays offered for as long as a living worker runs it. */
  #isRedefined(offer: PublishedTool, { tools, workers }: CatalogueContent): boolean {
    const published = publishedAs(offer, tools);
    return (
      published !== undefined &&
      published.definition !== offer.definition &&
      workers.some((worker) => worker.id !== this.#parts.workerId && runsAsPublished(worker, published))
    );
  }

  async beat(): Promise<void> {
    // Redis has lost what this worker told it, its tools too.
    if (await this.#beat()) await this.renewPublished();
  }

  #beat(): Promise<boolean> {
    const { backend, workerId, tiers, concurrency, pawlVersion, offers, startedAtMs, unconfined = [] } = this.#parts;
    const record: WorkerRecord = {
      id: workerId,
      host: hostname(),
      pid: process.pid,
      tiers,
      concurrency,
      running: this.#parts.running(),
      tools: offers.map(publishedToolId),
      definitions: offers.map(({ definition }) => definition),
      kinds: this.#parts.kinds(),
      ...(unconfined.length === 0 ? {} : { unconfined }),
      startedAtMs,
      pawlVersion,
      signing: backend.signatures.fingerprints,
      clockAheadMs: backend.clock.ownAheadMs,
    };
    return backend.catalogue.beat(record);
  }

  async learnPeers(): Promise<void> {
    const { backend, workerId, offers } = this.#parts;
    const content = await backend.catalogue.read();
    const { tools, workers } = content;
    for (const tier of this.#parts.tiers)
      this.#workersOf.set(tier, Math.max(1, workers.filter(({ tiers }) => tiers.includes(tier)).length));
    this.#peers = workers.filter(({ id }) => id !== workerId);
    // Whoever published another definition of them is gone: calls would go on being checked against what nobody runs.
    const abandoned = offers.filter(
      (offer) => publishedAs(offer, tools)?.definition !== offer.definition && !this.#isRedefined(offer, content),
    );
    if (abandoned.length > 0) await this.#offer(abandoned);
  }
}

function publishedAs(offer: PublishedTool, tools: CatalogueContent['tools']): PublishedTool | undefined {
  return tools.find((published) => publishedToolId(published) === publishedToolId(offer));
}
