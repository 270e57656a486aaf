/** What operators do to the fleet (R25, R33), each with its record in the audit trail. */
import type { AuditEvent } from '../../shared/audit/audit-event.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { ReliabilityModes, ReliabilitySwitches, SwitchCache } from '../../shared/config/switches.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { Flushed } from '../../shared/store/calls/call-index.ts';
import type { CircuitChange } from '../../shared/store/circuits/circuits.ts';
import type { ShadowCount } from '../../shared/store/config/switches.ts';
import { publishBroadcast } from '../../shared/store/redis/broadcasts.ts';
import { homePartition } from '../../shared/store/redis/keys.ts';
import { TIERS, type Tier, toolNamed } from '../../shared/tools/tool.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import type { CircuitAdmin, CircuitListing, CircuitSelection } from '../circuits/circuit-admin.ts';
import { type EnforcedCircuit, withEnforcement } from '../circuits/circuit-effects.ts';
import type { ToolCatalogue } from '../tools/tool-catalogue.ts';
import type { ProducerMetrics } from './metrics.ts';

/** About one tool, or all. */
export interface ReliabilityWord {
  readonly tool?: string;
  readonly reason?: string;
  readonly by?: string;
}

export interface Reliability {
  readonly enabled: boolean;
  readonly words: ReliabilitySwitches;
  readonly tools: readonly { readonly tool: string; readonly modes: ReliabilityModes }[];
  readonly shadow: readonly ShadowCount[];
}

/** One call, those of a session, of a tool, or all. */
export interface FlushSelection {
  readonly callId?: string;
  readonly sessionKey?: string;
  readonly tool?: string;
  readonly by?: string;
}

type Override = Extract<AuditEvent, { type: 'override' }>;

export interface OperatorServiceDeps {
  readonly backend: Backend;
  readonly settings: Settings;
  readonly catalogue: ToolCatalogue;
  readonly circuits: CircuitAdmin;
  readonly switches: SwitchCache;
  readonly metrics: ProducerMetrics;
  /** Whose word it is when whoever says it does not name themselves. */
  readonly operator: string;
  /** Circuits are what somebody has just made them, before the news of it are heard. */
  readonly onCircuits: (changed: readonly CircuitListing[], nowMs: number) => void;
}

export class OperatorService {
  readonly #parts: OperatorServiceDeps;

  constructor(parts: OperatorServiceDeps) {
    this.#parts = parts;
  }

  /** Writes down that somebody put their own word in place of the system's. */
  async overridden(
    what: Override['what'],
    action: string,
    by = this.#parts.operator,
    about: Omit<Override, 'type' | 'what' | 'action' | 'by'> = {},
  ): Promise<void> {
    await this.#parts.backend.audit({ type: 'override', what, action, by, ...about });
  }

  /** Reads what operators said of the reliability layer. */
  async learnSwitches(): Promise<void> {
    this.#parts.switches.update(await this.#parts.backend.switches.read());
  }

  /** Circuits that ever left CLOSED, those that configuration forces open, and what each does to calls. */
  async circuits(): Promise<EnforcedCircuit[]> {
    const [listings, { tools }] = await Promise.all([this.#parts.circuits.list(), this.#parts.catalogue.all()]);
    return withEnforcement(listings, tools, this.#parts.settings, this.#parts.switches);
  }

  /** What became of circuits, the newest first. */
  async circuitHistory(limit: number): Promise<CircuitChange[]> {
    const { breakers } = this.#parts.backend;
    const changes = await Promise.all(TIERS.map((tier) => breakers.history(homePartition(tier), limit)));
    return changes
      .flat()
      .sort((one, other) => other.atMs - one.atMs)
      .slice(0, limit);
  }

  /** Asks a worker to finish what it runs, and end. Throws `NOT_FOUND`. */
  async drainWorker(workerId: string, by?: string): Promise<void> {
    const { workers } = await this.#parts.backend.catalogue.read();
    if (!workers.some(({ id }) => id === workerId))
      throw new PawlError('NOT_FOUND', `There is no worker ${JSON.stringify(startOf(workerId, 200))}.`);
    await publishBroadcast(this.#parts.backend.redis, this.#parts.settings.prefix, { type: 'drain', workerId });
    await this.overridden('worker', `drain ${workerId}`, by);
  }

  /** Spreads the sessions that are opened from now on among so many shards of a tier. */
  async setShards(tier: Tier, shards: number, by?: string): Promise<void> {
    const { backend } = this.#parts;
    await backend.shards.set(tier, shards);
    await backend.breakers.spread(homePartition(tier));
    await this.overridden('shards', `${tier} ${shards}`, by);
  }

  /** Forces circuits open, or resets them to closed (R25). Returns them as they are now. */
  async setCircuit(
    action: 'force_open' | 'reset',
    select: CircuitSelection,
    reason?: string,
    by?: string,
  ): Promise<EnforcedCircuit[]> {
    const { tools } = await this.#parts.catalogue.all();
    for (const tool of tools) this.#parts.metrics.tools.add(tool);
    const changed = await this.#parts.circuits.set(action, select, reason ?? 'forced by an operator');
    this.#parts.onCircuits(changed, await this.#parts.backend.ledger.now());
    const circuits = changed.map(({ key }) => key);
    if (circuits.length > 0) await this.overridden('circuit', action, by, { tool: select.tool, circuits, reason });
    return withEnforcement(changed, tools, { tools: {} }, this.#parts.switches);
  }

  /**
   * The kill switch (R33): says to all processes that the reliability layer is off, or on again, for one tool or for all.
   * Throws `UNKNOWN_TOOL`.
   */
  async setReliability(enabled: boolean, { tool, reason, by }: ReliabilityWord): Promise<void> {
    const about = tool === undefined ? {} : { tool: await this.#qualified(tool) };
    await this.#parts.backend.switches.say(enabled, { ...about, ...(reason === undefined ? {} : { reason }) });
    await this.overridden('reliability', enabled ? 'enable' : 'disable', by, { ...about, reason });
    await this.learnSwitches();
  }

  /**
   * Forgets calls that have ended, of a session, a tool or all: asked for again, they run again (R25). Never one in flight, nor one that
   * may have had its effect, unless it was cancelled and is the only one that is named. Throws `UNKNOWN_TOOL` and `UNKNOWN_CALL`.
   */
  async flush({ callId, sessionKey, tool, by }: FlushSelection): Promise<Flushed> {
    if (callId !== undefined) return this.#forget(callId, by);
    const select = {
      ...(sessionKey === undefined ? {} : { sessionKey }),
      ...(tool === undefined ? {} : { tool: await this.#qualified(tool) }),
    };
    const { ledger, shards } = this.#parts.backend;
    const all = await Promise.all(shards.partitions().map((partition) => ledger.index.flush(partition, select)));
    const sum = (name: keyof Flushed) => all.reduce((total, counts) => total + counts[name], 0);
    await this.overridden('flush', `${sum('flushed')} forgotten`, by, select);
    return { flushed: sum('flushed'), inflight: sum('inflight'), unresolved: sum('unresolved') };
  }

  async #forget(callId: string, by: string | undefined): Promise<Flushed> {
    const forgotten = await this.#parts.backend.ledger.index.forget(callId);
    if (forgotten === undefined)
      throw new PawlError('UNKNOWN_CALL', `There is no call ${callId}, or its record has expired.`);
    await this.overridden('flush', `${forgotten.flushed} forgotten`, by, { callId });
    return forgotten;
  }

  async #qualified(name: string): Promise<string> {
    const { tools } = await this.#parts.catalogue.all();
    const published = toolNamed(tools, name);
    if (published === undefined) throw new PawlError('UNKNOWN_TOOL', `There is no tool ${JSON.stringify(name)}.`);
    return `${published.namespace}.${published.name}`;
  }

  /** What operators said of the reliability layer, what works for each tool here, and what shadow mode would have done. */
  async reliability(): Promise<Reliability> {
    const [{ tools }, shadow] = await Promise.all([
      this.#parts.catalogue.all(),
      this.#parts.backend.switches.shadows(),
      this.learnSwitches(),
    ]);
    return {
      enabled: this.#parts.switches.enabled,
      words: this.#parts.switches.words,
      tools: tools.map((tool) => ({ tool: `${tool.namespace}.${tool.name}`, modes: this.#parts.switches.modes(tool) })),
      shadow,
    };
  }
}
