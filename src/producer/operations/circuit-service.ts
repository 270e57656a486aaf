/** `pawl.circuits`: lists the fleet's circuits, forces them open and resets them. */
import { FORCED_BY_OPERATOR, remainingCooldownMs } from '../../shared/circuits/circuit-breaker.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { SwitchCache } from '../../shared/config/switches.ts';
import { checkLimit } from '../../shared/schema/known-members.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { CircuitChange } from '../../shared/store/circuits/circuits.ts';
import { homePartition } from '../../shared/store/redis/keys.ts';
import { TIERS } from '../../shared/tools/tool.ts';
import type { RecordOverride } from '../calls/audit.ts';
import type { CircuitAdmin, CircuitListing, CircuitSelection } from '../circuits/circuit-admin.ts';
import type { CircuitView } from '../circuits/circuit-cache.ts';
import { type EnforcedCircuit, withEnforcement } from '../circuits/circuit-effects.ts';
import type { ToolCatalogue } from '../tools/tool-catalogue.ts';
import type { ProducerMetrics } from './metrics.ts';

interface CircuitServiceDeps {
  readonly backend: Pick<Backend, 'breakers' | 'ledger'>;
  readonly settings: Pick<Settings, 'tools'>;
  readonly switches: SwitchCache;
  readonly catalogue: Pick<ToolCatalogue, 'all'>;
  readonly admin: CircuitAdmin;
  /** The copy by which this producer refuses calls. */
  readonly view: CircuitView;
  readonly metrics: Pick<ProducerMetrics, 'tools'>;
  readonly recordOverride: RecordOverride;
}

export class CircuitService {
  readonly #deps: CircuitServiceDeps;

  constructor(deps: CircuitServiceDeps) {
    this.#deps = deps;
  }

  /** Circuits that have left CLOSED before, and those that configuration forces open, each with its effect on calls. */
  async list(): Promise<EnforcedCircuit[]> {
    const { admin, catalogue, settings, switches } = this.#deps;
    const [listings, { tools }] = await Promise.all([admin.list(), catalogue.all()]);
    return withEnforcement(listings, tools, settings, switches);
  }

  /** The changes of circuits, the newest first. */
  async history(limit = 100): Promise<CircuitChange[]> {
    checkLimit(limit);
    const { breakers } = this.#deps.backend;
    const changes = await Promise.all(TIERS.map((tier) => breakers.history(homePartition(tier), limit)));
    return changes
      .flat()
      .sort((one, other) => other.atMs - one.atMs)
      .slice(0, limit);
  }

  /** Forces circuits open, or resets them to closed. Returns their new states. */
  async set(
    action: 'force_open' | 'reset',
    select: CircuitSelection,
    reason?: string,
    by?: string,
  ): Promise<EnforcedCircuit[]> {
    const { admin, backend, catalogue, metrics, switches, recordOverride } = this.#deps;
    const { tools } = await catalogue.all();
    for (const tool of tools) metrics.tools.add(tool);
    const changed = await admin.set(action, select, reason ?? FORCED_BY_OPERATOR);
    // Applied here at once, so that the next call of this producer sees the change before its broadcast arrives.
    this.#learn(changed, await backend.ledger.now());
    const circuits = changed.map(({ key }) => key);
    if (circuits.length > 0) await recordOverride({ what: 'circuit', action, by, tool: select.tool, circuits, reason });
    return withEnforcement(changed, tools, { tools: {} }, switches);
  }

  /** Reads all circuits into the producer's copy: broadcasts may have been missed. */
  async catchUp(): Promise<void> {
    const { admin, backend, view } = this.#deps;
    view.clear();
    const listings = await admin.list();
    this.#learn(listings, await backend.ledger.now());
  }

  #learn(listings: readonly CircuitListing[], nowMs: number): void {
    for (const { key, partition, circuit } of listings) {
      const retryAfterMs = circuit.state === 'OPEN' ? remainingCooldownMs(circuit, nowMs) : 0;
      this.#deps.view.learn({ partition, key, circuit, retryAfterMs });
    }
  }
}
