/**
 * The modes of the reliability layer for a tool: the configuration sets them for a process, an operator's switch for the fleet. Approval,
 * sandbox, signatures and least privilege are not part of the layer and cannot be switched off here.
 *
 * on      duplicates are merged, failures are retried, open circuits refuse
 * shadow  none of that happens; what would have happened is reported and counted
 * off     none of that happens; circuits still observe
 *
 * With the layer disabled altogether (the kill switch), each call runs directly: one attempt, never merged, counted by no circuit.
 */
import type { Tier, TieredTool } from '../tools/tool.ts';
import { getOrInsert } from '../util/get-or-insert.ts';

export const MODES = ['off', 'shadow', 'on'] as const;
export type Mode = (typeof MODES)[number];

export interface ReliabilityModes {
  /** False while the kill switch is thrown. The three modes are `off` then. */
  readonly enabled: boolean;
  readonly dedupe: Mode;
  readonly retry: Mode;
  readonly circuits: Mode;
}

export const DIRECT_MODES: ReliabilityModes = { enabled: false, dedupe: 'off', retry: 'off', circuits: 'off' };

/** A process's configuration of the layer. */
interface ReliabilitySettings {
  readonly enabled: boolean;
  readonly openMode: Mode;
  /** Staged enabling: a mode that is not named is `on`. */
  readonly tiers: {
    readonly [T in Tier]?:
      | { readonly dedupe?: Mode | undefined; readonly retry?: Mode | undefined; readonly circuits?: Mode | undefined }
      | undefined;
  };
}

/** An operator's switch at run time. */
export interface ReliabilitySwitch {
  readonly enabled: boolean;
  /** The time of Redis' clock. */
  readonly atMs: number;
  readonly reason?: string;
}

/** The latest switch for all tools, and those for single tools (`namespace.name`) since. */
export interface ReliabilitySwitches {
  readonly all?: ReliabilitySwitch;
  readonly tools: Readonly<Record<string, ReliabilitySwitch>>;
}

/** The ways in which shadow mode would have changed a call. */
export type ShadowKind = 'refused' | 'merged' | 'retried';

/**
 * The layer's modes for a tool. `disable` reaches every process. `enable` takes it back, and also enables processes that are off by
 * configuration and were running at the time; a process that starts later follows its configuration.
 */
export function modesOf(
  reliability: ReliabilitySettings,
  switches: ReliabilitySwitches,
  startedAtMs: number,
  tool: TieredTool,
): ReliabilityModes {
  const current = switches.tools[`${tool.namespace}.${tool.name}`] ?? switches.all;
  const enabled = isEnabled(reliability.enabled, current, startedAtMs);
  if (!enabled) return DIRECT_MODES;
  const { openMode } = reliability;
  const tier = reliability.tiers[tool.tier];
  const maxMode = openMode === 'shadow' ? 'shadow' : 'on';
  return {
    enabled,
    dedupe: lowerMode(maxMode, tier?.dedupe),
    retry: lowerMode(maxMode, tier?.retry),
    circuits: lowerMode(openMode, tier?.circuits),
  };
}

function isEnabled(configured: boolean, current: ReliabilitySwitch | undefined, startedAtMs: number): boolean {
  return current === undefined ? configured : current.enabled && (configured || current.atMs >= startedAtMs);
}

function lowerMode(one: Mode, other: Mode = 'on'): Mode {
  return MODES.indexOf(one) < MODES.indexOf(other) ? one : other;
}

/** One process's copy of the switches, which each change updates. */
export class SwitchCache {
  readonly #reliability: ReliabilitySettings;
  #switches: ReliabilitySwitches = { tools: {} };
  /** The time of Redis' clock; until it is known, only the configuration counts. */
  #startedAtMs: number | undefined;
  /** The modes under the current switches. */
  #modes = new WeakMap<TieredTool, ReliabilityModes>();

  constructor(reliability: ReliabilitySettings) {
    this.#reliability = reliability;
  }

  get switches(): ReliabilitySwitches {
    return this.#switches;
  }

  /** Whether the layer works for tools without a switch of their own. */
  get enabled(): boolean {
    return isEnabled(this.#reliability.enabled, this.#switches.all, this.#startedAtMs ?? Number.POSITIVE_INFINITY);
  }

  /** Takes the switches from Redis; `nowMs` is Redis' clock when they were read. */
  update({ switches, nowMs }: { readonly switches: ReliabilitySwitches; readonly nowMs: number }): void {
    this.#switches = switches;
    this.#startedAtMs ??= nowMs;
    this.#modes = new WeakMap();
  }

  modes(tool: TieredTool): ReliabilityModes {
    const startedAtMs = this.#startedAtMs ?? Number.POSITIVE_INFINITY;
    return getOrInsert(this.#modes, tool, () => modesOf(this.#reliability, this.#switches, startedAtMs, tool));
  }
}
