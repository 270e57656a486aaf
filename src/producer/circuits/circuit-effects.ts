/**
 * The effect of the fleet's circuits on calls. A listing shows it for each circuit, and includes circuits that only the configuration
 * forces open.
 */
import { FORCED_BY_CONFIGURATION } from '../../shared/circuits/circuit-breaker.ts';
import { mayUseCircuit } from '../../shared/circuits/circuit-key.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { SwitchCache } from '../../shared/config/switches.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import { homePartition } from '../../shared/store/redis/keys.ts';
import { qualifiedName, type TieredTool } from '../../shared/tools/tool.ts';
import type { CircuitListing } from './circuit-admin.ts';

/**
 * `enforced`: an open circuit refuses · `shadow`: it reports what it would refuse · `observing`: it counts outcomes, and refuses
 * nothing · `bypassed`: the kill switch is on, so it does not even count.
 */
type Enforcement = 'enforced' | 'shadow' | 'observing' | 'bypassed';

export interface EnforcedCircuit extends CircuitListing {
  readonly enforcement: Enforcement;
}

export function withEnforcement(
  listings: readonly CircuitListing[],
  tools: readonly TieredTool[],
  settings: Pick<Settings, 'tools'>,
  switches: Pick<SwitchCache, 'modes'>,
): EnforcedCircuit[] {
  const forced = tools.filter((tool) => toolPolicy(settings, tool).circuit?.forcedOpen === true);
  const isForced = (key: string) => forced.some((tool) => key === ownCircuit(tool));
  return [...listings.filter(({ key }) => !isForced(key)), ...forced.map(forcedByConfiguration)].map((listing) => ({
    ...listing,
    enforcement: enforcementOf(listing, tools, switches),
  }));
}

function ownCircuit(tool: TieredTool): string {
  return `tool:${qualifiedName(tool)}`;
}

function forcedByConfiguration(tool: TieredTool): CircuitListing {
  return {
    key: ownCircuit(tool),
    partition: homePartition(tool.tier),
    circuit: { state: 'FORCED_OPEN', epoch: 0, reason: FORCED_BY_CONFIGURATION },
    failures: 0,
  };
}

/** The strictest effect among the tools that share a circuit. */
function enforcementOf(
  { key, partition }: CircuitListing,
  tools: readonly TieredTool[],
  switches: Pick<SwitchCache, 'modes'>,
): Enforcement {
  const users = tools.filter((tool) => tool.tier === partition.tier && mayUseCircuit(key, qualifiedName(tool)));
  // No worker publishes the tool any more: the effect is that on any tool of its tier.
  const affected = users.length > 0 ? users : [{ namespace: '', name: '', tier: partition.tier }];
  const modes = affected.map((tool) => switches.modes(tool));
  if (modes.some(({ circuits }) => circuits === 'on')) return 'enforced';
  if (modes.some(({ circuits }) => circuits === 'shadow')) return 'shadow';
  return modes.some(({ enabled }) => enabled) ? 'observing' : 'bypassed';
}
