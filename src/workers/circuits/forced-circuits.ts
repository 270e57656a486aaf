/**
 * Circuits that operators force open. A tool's own circuit holds for all of its calls, including those that go through the circuit of a
 * tenant or one that tools share. Such calls begin without a look at the tool's own.
 */
import type { Circuit } from '../../shared/circuits/circuit-breaker.ts';
import { circuitKey } from '../../shared/circuits/circuit-key.ts';
import type { CircuitRecords } from '../../shared/store/ports.ts';
import { homePartition } from '../../shared/store/redis/keys.ts';
import { qualifiedName, type Tier } from '../../shared/tools/tool.ts';

export class ForcedCircuits {
  readonly #breakers: Pick<CircuitRecords, 'list' | 'read'>;
  #heardOfOne = false;
  #isCaughtUp = false;

  constructor(breakers: Pick<CircuitRecords, 'list' | 'read'>) {
    this.#breakers = breakers;
  }

  /** False where none is forced open, as is usual: no attempt has to ask. */
  get mayBeAny(): boolean {
    return this.#heardOfOne || !this.#isCaughtUp;
  }

  learn({ state }: Circuit): void {
    if (state === 'FORCED_OPEN') this.#heardOfOne = true;
  }

  /** Reads all circuits, by their keys: changes may have been missed. */
  async catchUp(tiers: readonly Tier[]): Promise<ReadonlyMap<string, Circuit>> {
    const listed = await Promise.all(tiers.map((tier) => this.#breakers.list(homePartition(tier))));
    const circuits = new Map(listed.flatMap((ofTier) => [...ofTier]));
    for (const circuit of circuits.values()) this.learn(circuit);
    this.#isCaughtUp = true;
    return circuits;
  }

  /** The reason why the tool's own circuit is forced open, for a call that goes through another one. */
  async reasonFor(
    tool: { readonly namespace: string; readonly name: string; readonly tier: Tier },
    through: string,
  ): Promise<string | undefined> {
    const own = circuitKey({ hint: 'tool', tool: qualifiedName(tool) });
    if (through === own) return undefined;
    const circuit = await this.#breakers.read(homePartition(tool.tier), own);
    return circuit.state === 'FORCED_OPEN' ? circuit.reason : undefined;
  }
}
