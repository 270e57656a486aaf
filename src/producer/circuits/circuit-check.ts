/** Checks a call's circuit, in this producer's copy of the fleet's circuits, without a round trip to Redis. */
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import {
  FORCED_BY_CONFIGURATION,
  FORCED_OPEN_RETRY_MS,
  forcedOpenText,
} from '../../shared/circuits/circuit-breaker.ts';
import { circuitKey, circuitTarget, targetOfCircuit } from '../../shared/circuits/circuit-key.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { ReliabilityModes, SwitchCache } from '../../shared/config/switches.ts';
import { circuitPolicyOf, toolPolicy } from '../../shared/config/tool-settings.ts';
import { homePartition } from '../../shared/store/redis/keys.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import type { CircuitRefusal, CircuitView } from './circuit-cache.ts';

export interface CallCircuit {
  readonly key: string;
  /** The circuit of the tool itself, which most calls go through. */
  readonly ownKey: string;
  readonly modes: ReliabilityModes;
}

export interface CircuitCheckDeps {
  readonly settings: Settings;
  readonly switches: Pick<SwitchCache, 'modes'>;
  readonly circuits: Pick<CircuitView, 'refusal'>;
}

/** A configured circuit stays open until the configuration changes and the process starts again. */
const FORCED_HERE: CircuitRefusal = {
  state: 'FORCED_OPEN',
  reason: FORCED_BY_CONFIGURATION,
  retryAfterMs: FORCED_OPEN_RETRY_MS,
};

export class CircuitCheck {
  readonly #deps: CircuitCheckDeps;
  readonly #ownKeys = new WeakMap<ResolvedTool, string>();

  constructor(deps: CircuitCheckDeps) {
    this.#deps = deps;
  }

  circuitOf(envelope: ToolCallEnvelope, tool: ResolvedTool): CallCircuit {
    const ownKey = this.#ownKeyOf(tool);
    return { key: this.#sharedKeyOf(envelope, tool) ?? ownKey, ownKey, modes: this.#deps.switches.modes(tool) };
  }

  /** The refusal of the call's circuit; undefined when the call may go on. A circuit that only observes refuses nothing. */
  refusal(tool: ResolvedTool, { key, ownKey, modes }: CallCircuit): CircuitRefusal | undefined {
    if (modes.circuits !== 'on') return undefined;
    const { settings, circuits } = this.#deps;
    const isForcedHere = toolPolicy(settings, tool).circuit?.forcedOpen === true;
    const open = isForcedHere ? FORCED_HERE : circuits.refusal(homePartition(tool.tier), key, ownKey);
    return open === undefined || circuitPolicyOf(settings, tool).whenOpen === 'park' ? undefined : open;
  }

  #ownKeyOf(tool: ResolvedTool): string {
    return getOrInsert(this.#ownKeys, tool, () => circuitKey({ hint: 'tool', tool: qualifiedName(tool) }));
  }

  /** The circuit of a dependency, a target or a tenant; undefined when the call goes through the tool's own. */
  #sharedKeyOf({ transport, target: { tenantId }, payload }: ToolCallEnvelope, tool: ResolvedTool): string | undefined {
    const { circuitBreakerHint: hint = 'tool' } = transport;
    const { dependency, targetParameter } = { ...tool.circuit, ...toolPolicy(this.#deps.settings, tool).circuit };
    const { params } = payload;
    const isNamed = targetParameter !== undefined && Object.hasOwn(params, targetParameter);
    const target = isNamed ? circuitTarget(params[targetParameter]) : undefined;
    if (hint === 'tool' && tenantId === undefined && target === undefined) return undefined;
    return circuitKey({ hint, tool: qualifiedName(tool), dependency, target, tenantId });
  }
}

export function circuitRefusalText(tool: Pick<ResolvedTool, 'name'>, key: string, refusal: CircuitRefusal): string {
  if (refusal.state === 'FORCED_OPEN') return forcedOpenText(tool.name, refusal.reason);
  const target = targetOfCircuit(key);
  const subject = target === undefined ? tool.name : `${tool.name} for ${target}`;
  const seconds = Math.ceil(refusal.retryAfterMs / 1_000);
  return `${subject} keeps failing and is given time to recover; try again in ${seconds} s.`;
}
