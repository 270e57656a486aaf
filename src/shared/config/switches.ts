/**
 * What of the reliability layer works for a tool (R33, R34): configuration says it for a process, an operator's word for the
 * fleet. Approval, sandbox, signatures and least privilege are no part of the layer: nothing here turns them off.
 *
 * on      duplicates are merged, failures retried, open circuits refuse
 * shadow  nothing of that happens; what would have happened is told and counted
 * off     nothing of that happens; circuits still observe
 *
 * Disabled altogether (the kill switch), a call is a direct call: one of its own, one attempt, no circuit that counts it.
 */
import type { Tier } from '../tools/tool.ts';

export const MODES = ['off', 'shadow', 'on'] as const;
export type Mode = (typeof MODES)[number];

export interface ReliabilityModes {
  /** False: the kill switch is thrown. The three modes are `off` then. */
  readonly enabled: boolean;
  readonly dedupe: Mode;
  readonly retry: Mode;
  readonly circuits: Mode;
}

export const DIRECT: ReliabilityModes = { enabled: false, dedupe: 'off', retry: 'off', circuits: 'off' };

/** A process's configuration of the layer. */
export interface ReliabilitySettings {
  readonly enabled: boolean;
  readonly openMode: Mode;
  /** Staged enabling: what is not named is `on`. */
  readonly tiers: {
    readonly [T in Tier]?:
      | { readonly dedupe?: Mode | undefined; readonly retry?: Mode | undefined; readonly circuits?: Mode | undefined }
      | undefined;
  };
}

/** What an operator said at run time. */
export interface SwitchWord {
  readonly enabled: boolean;
  /** On Redis' clock. */
  readonly atMs: number;
  readonly reason?: string;
}

/** The last word about all tools, and those about single ones (`namespace.name`) since. */
export interface SwitchWords {
  readonly all?: SwitchWord;
  readonly tools: Readonly<Record<string, SwitchWord>>;
}

interface SwitchedTool {
  readonly namespace: string;
  readonly name: string;
  readonly tier: Tier;
}

/** What a tool's calls "would have" met in shadow mode. */
export type ShadowKind = 'refused' | 'merged' | 'retried';

/**
 * The layer's modes for a tool. `disable` reaches every process. `enable` takes it back, and switches a process on whose
 * configuration says off, if that process was running when it was said: whoever starts later means its configuration.
 */
export function modesOf(
  reliability: ReliabilitySettings,
  words: SwitchWords,
  startedAtMs: number,
  tool: SwitchedTool,
): ReliabilityModes {
  const word = words.tools[`${tool.namespace}.${tool.name}`] ?? words.all;
  const enabled = isEnabled(reliability.enabled, word, startedAtMs);
  if (!enabled) return DIRECT;
  const { openMode } = reliability;
  const tier = reliability.tiers[tool.tier];
  const most = openMode === 'shadow' ? 'shadow' : 'on';
  return {
    enabled,
    dedupe: least(most, tier?.dedupe),
    retry: least(most, tier?.retry),
    circuits: least(openMode, tier?.circuits),
  };
}

function isEnabled(configured: boolean, word: SwitchWord | undefined, startedAtMs: number): boolean {
  return word === undefined ? configured : word.enabled && (configured || word.atMs >= startedAtMs);
}

function least(one: Mode, other: Mode = 'on'): Mode {
  return MODES.indexOf(one) < MODES.indexOf(other) ? one : other;
}

/** One process's copy of the switches, pushed by whoever changes one. */
export class Switches {
  readonly #reliability: ReliabilitySettings;
  #words: SwitchWords = { tools: {} };
  /** On Redis' clock; until it is known, only the configuration speaks. */
  #startedAtMs: number | undefined;
  /** As the words stand. */
  #modes = new WeakMap<SwitchedTool, ReliabilityModes>();

  constructor(reliability: ReliabilitySettings) {
    this.#reliability = reliability;
  }

  get words(): SwitchWords {
    return this.#words;
  }

  /** Whether the layer works for tools of which nobody spoke by name. */
  get enabled(): boolean {
    return isEnabled(this.#reliability.enabled, this.#words.all, this.#startedAtMs ?? Number.POSITIVE_INFINITY);
  }

  /** Takes what Redis holds; `nowMs` is Redis' clock when it was read. */
  learn({ words, nowMs }: { readonly words: SwitchWords; readonly nowMs: number }): void {
    this.#words = words;
    this.#startedAtMs ??= nowMs;
    this.#modes = new WeakMap();
  }

  modes(tool: SwitchedTool): ReliabilityModes {
    let modes = this.#modes.get(tool);
    if (modes === undefined) {
      modes = modesOf(this.#reliability, this.#words, this.#startedAtMs ?? Number.POSITIVE_INFINITY, tool);
      this.#modes.set(tool, modes);
    }
    return modes;
  }
}
