/**
 * Circuits that operators force open. A tool's own circuit, when forced open, refuses all of its calls, including those that use the
 * circuit of a tenant or a shared one. The start of such calls does not check the tool's own circuit.
 */
import type { Circuit } from '../../shared/circuits/circuit-breaker.ts';
import { circuitKey } from '../../shared/circuits/circuit-key.ts';
import type { CircuitRecords } from '../../shared/store/ports.ts';
import { homePartition } from '../../shared/store/redis/keys.ts';
import { qualifiedName, type Tier, type TieredTool } from '../../shared/tools/tool.ts';

export class ForcedCircuits {
  readonly #breakers: Pick<CircuitRecords, 'list' | 'read'>;
  #mayBeForced = false;
  #isCaughtUp = false;

  constructor(breakers: Pick<CircuitRecords, 'list' | 'read'>) {
    this.#breakers = breakers;
  }

  /** False when none is forced open, which is usual: no attempt has to check. */
  get mayBeAny(): boolean {
    return this.#mayBeForced || !this.#isCaughtUp;
  }

  learn({ state }: Circuit): void {
    if (state === 'FORCED_OPEN') this.#mayBeForced = true;
  }

  /** Reads all circuits, by their keys: changes may have been missed. */
  async catchUp(tiers: readonly Tier[]): Promise<ReadonlyMap<string, Circuit>> {
    const listed = await Promise.all(tiers.map((tier) => this.#breakers.list(homePartition(tier))));
    const circuits = new Map(listed.flatMap((ofTier) => [...ofTier]));
    for (const circuit of circuits.values()) this.learn(circuit);
    this.#isCaughtUp = true;
    return circuits;
  }

  /** The reason why the tool's own circuit is forced open, for a call that uses another circuit. */
  async reasonFor(tool: TieredTool, usedKey: string): Promise<string | undefined> {
    const ownKey = circuitKey({ hint: 'tool', tool: qualifiedName(tool) });
    if (usedKey === ownKey) return undefined;
    const circuit = await this.#breakers.read(homePartition(tool.tier), ownKey);
    return circuit.state === 'FORCED_OPEN' ? circuit.reason : undefined;
  }
}
