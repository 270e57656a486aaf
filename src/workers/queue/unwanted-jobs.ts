/** Decides which jobs a worker should not start: while it drains, runs a suspect alone, or fails at a tool that other workers run. */
import type { SwitchCache } from '../../shared/config/switches.ts';
import { publishedToolId } from '../../shared/store/fleet/catalogue.ts';
import { type AnyTool, qualifiedName } from '../../shared/tools/tool.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { RegisteredTool } from '../attempt/attempt-state.ts';
import type { NodeCircuits } from '../circuits/node-circuit.ts';
import type { Unwanted } from './job-queue.ts';

interface UnwantedJobsDeps {
  readonly tools: ReadonlyMap<string, RegisteredTool>;
  readonly switches: Pick<SwitchCache, 'modes'>;
  readonly nodeCircuits: Pick<NodeCircuits, 'isOpen' | 'mayTry'>;
  readonly clock: Pick<Clock, 'monotonic'>;
  /** IDs of other living workers that publish the tool too. */
  othersWith(publishedTool: string): readonly string[];
  /** Whether the worker starts no jobs now. */
  isPaused(): boolean;
}

export class UnwantedJobs {
  readonly #deps: UnwantedJobsDeps;

  constructor(deps: UnwantedJobsDeps) {
    this.#deps = deps;
  }

  /** The outcome of a job that should not start; undefined when it should. The namespace is unknown before the attempt has begun. */
  outcomeOf(toolName: string, namespace?: string): Unwanted | undefined {
    const { tools, switches, nodeCircuits, clock, othersWith, isPaused } = this.#deps;
    if (isPaused()) return { kind: 'released' };
    for (const { tool } of tools.values()) {
      if (tool.name !== toolName || !switches.modes(tool).enabled) continue;
      if (namespace === undefined ? this.#hasNamesake(tool) : tool.namespace !== namespace) continue;
      if (!nodeCircuits.isOpen(qualifiedName(tool))) continue;
      const others = othersWith(publishedToolId(tool));
      if (others.length > 0 && !nodeCircuits.mayTry(qualifiedName(tool), clock.monotonic()))
        return { kind: 'skipped', need: publishedToolId(tool), others };
    }
    return undefined;
  }

  #hasNamesake({ name, namespace }: AnyTool): boolean {
    for (const { tool } of this.#deps.tools.values())
      if (tool.name === name && tool.namespace !== namespace) return true;
    return false;
  }
}
