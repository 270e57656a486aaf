/** The settings of a circuit, and how tools and operators override them. */
import { z } from 'zod';
import { defined } from '../util/json/omit-undefined.ts';
import { MAX_KEPT_MS } from '../util/time.ts';

export interface CircuitPolicy {
  readonly windowMs: number;
  readonly consecutiveFailures: number;
  /** Share of failures, 0 to 1, over the last `rateSamples` outcomes, of which at least `rateMinimum` must exist. */
  readonly failureRate: number;
  readonly rateSamples: number;
  readonly rateMinimum: number;
  readonly cooldownMs: number;
  /** The time after which a probe without an answer no longer blocks the next one. */
  readonly probeLeaseMs: number;
  readonly successesToClose: number;
  /** The answer to a queued call that meets an open circuit. */
  readonly whenOpen: 'refuse' | 'park';
  /** The name of a service that several tools share, for `circuitBreakerHint: "dependency"`. */
  readonly dependency?: string;
  /**
   * The name of the parameter that holds a call's target, such as an address. Each target (the host of an address) then has a circuit
   * of its own, so that a failing target closes the tool for no other.
   */
  readonly targetParameter?: string;
}

const milliseconds = z.number().int().positive().max(MAX_KEPT_MS);

/** The part of the policy that tools and operators may set. */
export const circuitOverridesSchema = z
  .strictObject({
    windowMs: milliseconds,
    consecutiveFailures: z.number().int().min(1).max(1_000_000),
    failureRate: z.number().gt(0).max(1),
    rateSamples: z.number().int().min(1).max(1_000),
    rateMinimum: z.number().int().min(1).max(1_000),
    cooldownMs: milliseconds,
    probeLeaseMs: milliseconds,
    successesToClose: z.number().int().min(1).max(100),
    whenOpen: z.enum(['refuse', 'park']),
    dependency: z.string().min(1),
    targetParameter: z.string().min(1).max(256),
  })
  .partial();

export type CircuitOverrides = { readonly [K in keyof CircuitPolicy]?: CircuitPolicy[K] | undefined };

/** The operator's settings for the circuits of all tools, and of a class: tools that read, and tools that change something. */
export const circuitDefaultsSchema = circuitOverridesSchema.extend({
  readOnly: circuitOverridesSchema.optional(),
  mutating: circuitOverridesSchema.optional(),
});

type CircuitDefaults = CircuitOverrides & {
  readonly readOnly?: CircuitOverrides | undefined;
  readonly mutating?: CircuitOverrides | undefined;
};

const DEFAULT_CIRCUIT: CircuitPolicy = {
  windowMs: 120_000,
  consecutiveFailures: 5,
  failureRate: 0.5,
  rateSamples: 20,
  rateMinimum: 10,
  cooldownMs: 30_000,
  probeLeaseMs: 60_000,
  successesToClose: 2,
  whenOpen: 'refuse',
};

/**
 * Read-only tools may fail more often and recover sooner. The operator's defaults for the tool's class win over those for all tools. The
 * outcomes that the failure rate is of, and their minimum, fit each other: otherwise the rate would never open a circuit.
 */
export function circuitPolicy(
  readOnly: boolean,
  tool: CircuitOverrides = {},
  operator: CircuitOverrides = {},
  { readOnly: readDefaults, mutating: writeDefaults, ...commonDefaults }: CircuitDefaults = {},
): CircuitPolicy {
  const given = {
    ...defined(commonDefaults),
    ...defined((readOnly ? readDefaults : writeDefaults) ?? {}),
    ...defined(tool),
    ...defined(operator),
  };
  const { rateMinimum = DEFAULT_CIRCUIT.rateMinimum } = given;
  const { rateSamples = Math.max(DEFAULT_CIRCUIT.rateSamples, rateMinimum) } = given;
  return {
    ...DEFAULT_CIRCUIT,
    ...(readOnly ? { consecutiveFailures: 8, cooldownMs: 20_000 } : {}),
    ...given,
    rateSamples,
    rateMinimum: Math.min(rateMinimum, rateSamples),
  };
}
