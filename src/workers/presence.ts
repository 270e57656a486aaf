/**
 * What the fleet knows of this worker, and it of the fleet: its tools in the catalogue, its heartbeat, and who else is there.
 */
import { hostname } from 'node:os';
import type { Logger } from '../shared/log.ts';
import type { Backend } from '../shared/store/backend.ts';
import { offerId, type ToolOffer, type WorkerRecord } from '../shared/store/catalogue.ts';
import { qualifiedName, type Tier } from '../shared/tool.ts';

export interface PresenceParts {
  readonly backend: Backend;
  readonly workerId: string;
  readonly tiers: readonly Tier[];
  readonly concurrency: number;
  readonly pawlVersion: string;
  readonly log: Logger;
  readonly offers: readonly ToolOffer[];
  readonly startedAtMs: number;
  /** How many attempts run now. */
  running(): number;
  /** Kinds of declared tools that this worker can run. */
  kinds(): NonNullable<WorkerRecord['kinds']>;
}

export class Presence {
  readonly #parts: PresenceParts;
  /** Tools that other living workers offer too. */
  #sharedTools: ReadonlySet<string> = new Set();
  /** How many living workers take from a tier's queue, this one included. */
  readonly #workersOf = new Map<Tier, number>();
  #published = false;

  constructor(parts: PresenceParts) {
    this.#parts = parts;
  }

  /** How many living workers take from a tier's queue, this one included. */
  workersOf(tier: Tier): number {
    return this.#workersOf.get(tier) ?? 1;
  }

  /** Whether another living worker offers the tool too. */
  isShared(offer: string): boolean {
    return this.#sharedTools.has(offer);
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
        { event: 'definition_drift', tool: offerId(offer) },
        'another worker published this tool and version with a different definition; the latest one is offered',
      );
    }
    this.#published = true;
    await this.beat();
    await this.learnPeers();
  }

  /** Redis was away, and may have come back without what this worker told it. */
  async publishAgain(): Promise<void> {
    if (!this.#published) return;
    await this.renewOffers();
    await this.beat();
  }

  /** Keeps the offers from being forgotten. */
  async renewOffers(): Promise<void> {
    const { backend, offers } = this.#parts;
    const nowMs = await backend.ledger.now();
    await backend.catalogue.publish(offers.map((offer) => ({ ...offer, seenAtMs: nowMs })));
  }

  async beat(): Promise<void> {
    const { backend, workerId, tiers, concurrency, pawlVersion, offers, startedAtMs } = this.#parts;
    const record: WorkerRecord = {
      id: workerId,
      host: hostname(),
      pid: process.pid,
      tiers,
      concurrency,
      running: this.#parts.running(),
      tools: offers.map(offerId),
      kinds: this.#parts.kinds(),
      startedAtMs,
      pawlVersion,
      signing: backend.seals.fingerprints,
      clockAheadMs: backend.clock.ownAheadMs,
    };
    await backend.catalogue.beat(record);
  }

  async learnPeers(): Promise<void> {
    const { workers } = await this.#parts.backend.catalogue.read();
    for (const tier of this.#parts.tiers)
      this.#workersOf.set(tier, Math.max(1, workers.filter(({ tiers }) => tiers.includes(tier)).length));
    this.#sharedTools = new Set(
      workers.filter((worker) => worker.id !== this.#parts.workerId).flatMap((worker) => worker.tools),
    );
  }
}
