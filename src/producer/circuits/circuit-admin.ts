/** Lists the fleet's circuits, forces them open and resets them. */
import { type Circuit, CLOSED_CIRCUIT, forcedOpen, reset } from '../../shared/circuits/circuit-breaker.ts';
import { hasTarget, toolOfCircuit } from '../../shared/circuits/circuit-key.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { checkObject } from '../../shared/schema/known-members.ts';
import type { CallLedger, CircuitRecords } from '../../shared/store/ports.ts';
import { homePartition, type Partition } from '../../shared/store/redis/keys.ts';
import type { CircuitTransition } from '../../shared/telemetry/call-events.ts';
import { qualifiedName, type TieredTool, toolNamed } from '../../shared/tools/tool.ts';

export interface CircuitListing {
  readonly key: string;
  readonly partition: Partition;
  readonly circuit: Circuit;
  /** Failures in the window, while the circuit is closed; of an open circuit, the failures that opened it. */
  readonly failures: number;
}

/** A selection of circuits: one by its key, or all of a tool, optionally of one tenant. A reset without either selects all. */
export interface CircuitSelection {
  readonly key?: string;
  readonly tool?: string;
  readonly tenantId?: string;
}

const TRIES = 10;
/** A circuit that tools share, one per tier. The tools that will use it are not known beforehand. */
const SHARED = /^(?:dependency:[^@]|global(?:@|$))/;

interface CircuitAdminDeps {
  readonly breakers: CircuitRecords;
  /** The tools that workers publish, and those that are declared. */
  tools(): Promise<readonly TieredTool[]>;
  readonly ledger: Pick<CallLedger, 'now'>;
}

export class CircuitAdmin {
  readonly #backend: CircuitAdminDeps;
  readonly #partitions: readonly Partition[];

  readonly #onChange: (change: CircuitTransition) => void;

  constructor(
    backend: CircuitAdminDeps,
    partitions: readonly Partition[],
    onChange: (change: CircuitTransition) => void = () => {},
  ) {
    this.#backend = backend;
    this.#partitions = partitions;
    this.#onChange = onChange;
  }

  /** Circuits that have left CLOSED before. */
  async list(): Promise<CircuitListing[]> {
    const { breakers } = this.#backend;
    const ofPartition = async (partition: Partition): Promise<CircuitListing[]> => {
      const circuits = await breakers.list(partition);
      return Promise.all(
        [...circuits].map(async ([key, circuit]) => {
          if (circuit.state === 'OPEN') return { key, partition, circuit, failures: circuit.failures };
          const window = await breakers.window(partition, key);
          return { key, partition, circuit, failures: window.filter((sample) => !sample.ok).length };
        }),
      );
    };
    return (await Promise.all(this.#partitions.map(ofPartition))).flat();
  }

  /** Returns the changed circuits. Throws `UNKNOWN_TOOL` when there is nothing to force open. */
  async set(action: 'force_open' | 'reset', select: CircuitSelection, reason: string): Promise<CircuitListing[]> {
    checkObject('selection', select);
    const [stored, tools] = await Promise.all([this.list(), this.#backend.tools()]);
    const match = select.tool === undefined ? undefined : toolNamed(tools, select.tool);
    const selected = stored.filter((listing) => isSelected(listing, select, action, match));
    const unknown = action === 'force_open' ? this.#unstored(select, tools, stored) : [];
    const targets = [...selected, ...unknown];
    const nowMs = await this.#backend.ledger.now();
    return Promise.all(targets.map((target) => this.#change(target, action, reason, nowMs)));
  }

  /** Selected circuits that have never left CLOSED, so that they have no record. */
  #unstored(
    select: CircuitSelection,
    tools: readonly TieredTool[],
    stored: readonly CircuitListing[],
  ): readonly CircuitListing[] {
    const { key } = select;
    if (key === undefined || !SHARED.test(key)) return ownCircuit(select, tools, stored);
    return this.#partitions
      .filter(({ tier }) => !stored.some((listing) => listing.key === key && listing.partition.tier === tier))
      .map((partition) => ({ key, partition, circuit: CLOSED_CIRCUIT, failures: 0 }));
  }

  async #change(
    target: CircuitListing,
    action: 'force_open' | 'reset',
    reason: string,
    nowMs: number,
  ): Promise<CircuitListing> {
    const { breakers } = this.#backend;
    let current = await breakers.read(target.partition, target.key);
    for (let tries = 0; tries < TRIES; tries += 1) {
      const next = action === 'reset' ? reset(current) : forcedOpen(current, reason, nowMs);
      const { state } = current;
      const answer = await breakers.change({ partition: target.partition, key: target.key }, current, next, 0);
      current = answer.circuit;
      if (!answer.changed) continue;
      if (state !== next.state) {
        const details = next.state === 'FORCED_OPEN' ? { reason: next.reason } : {};
        this.#onChange({ circuit: target.key, from: state, to: next.state, ...details });
      }
      break;
    }
    return { ...target, circuit: current, failures: 0 };
  }
}

/** The tool's own circuit, unless it is among the known ones. Throws `UNKNOWN_TOOL`. */
function ownCircuit(
  select: CircuitSelection,
  tools: readonly TieredTool[],
  stored: readonly CircuitListing[],
): readonly CircuitListing[] {
  const name = select.tool ?? toolOfCircuit(select.key ?? '') ?? '';
  const tool = toolNamed(tools, name);
  const tenant = select.tenantId === undefined ? '' : `@${select.tenantId}`;
  const key = select.key ?? `tool:${tool?.namespace}.${tool?.name}${tenant}`;
  if (stored.some((listing) => listing.key === key)) return [];
  if (tool === undefined)
    throw new PawlError('UNKNOWN_TOOL', `There is no tool or circuit ${JSON.stringify(select.key ?? name)}.`);
  return [{ key, partition: homePartition(tool.tier), circuit: CLOSED_CIRCUIT, failures: 0 }];
}

/**
 * `named` is the one tool that a name means, as everywhere. Undefined stands for a name that no worker publishes any more: then all tools
 * of that name are meant.
 */
function isSelected(
  { key }: CircuitListing,
  select: CircuitSelection,
  action: 'force_open' | 'reset',
  match: TieredTool | undefined,
): boolean {
  if (select.key !== undefined) return key === select.key;
  if (select.tool === undefined) return action === 'reset';
  // The tool's own circuit holds for all of its targets when it is forced open.
  if (action === 'force_open' && hasTarget(key)) return false;
  const tool = toolOfCircuit(key);
  const [, tenantId] = key.split('@');
  const isOfTool =
    match === undefined
      ? tool === select.tool || tool?.endsWith(`.${select.tool}`) === true
      : tool === qualifiedName(match);
  return isOfTool && (select.tenantId === undefined || select.tenantId === tenantId);
}
