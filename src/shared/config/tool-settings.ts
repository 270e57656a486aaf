/** The operator's settings for single tools, and how they apply to a call. */
import { z } from 'zod';
import type { LedgerTtls } from '../calls/call-state.ts';
import {
  type CircuitOverrides,
  type CircuitPolicy,
  type circuitDefaultsSchema,
  circuitOverridesSchema,
  circuitPolicy,
} from '../circuits/circuit-policy.ts';
import { limitSettingsSchema } from '../limits/concurrency-limit.ts';
import type { Effects } from '../retries/effects.ts';
import { retryOverridesSchema } from '../retries/retry.ts';
import { sessionStateSchema } from '../sessions/session.ts';
import type { TieredTool, ToolReference } from '../tools/tool.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { MAX_WAIT_MS } from '../util/time.ts';
import { bytes, durability, keptMs } from './setting-types.ts';

/** Limits repetitions of one call in a session, if the caller gives no key. */
export const loopGuardSchema = z
  .strictObject({
    warnAt: z.number().int().min(1),
    refuseAt: z.number().int().min(2),
    /** The window begins with the first repetition; then the count restarts. */
    windowMs: keptMs,
  })
  .partial();

/** The lifetimes of the records of calls. */
export const ttlSchema = z
  .strictObject({ doneMs: keptMs, failedMs: keptMs, failedKeptMs: keptMs, cancelledMs: keptMs } satisfies {
    readonly [Name in keyof Required<LedgerTtls>]: typeof keptMs;
  })
  .partial();

/** The operator's settings for one tool, under its name or `namespace.name`. */
export const toolPolicySchema = z.strictObject({
  enabled: z.boolean().optional(),
  /** The tool can be called only while its session is in one of these states. */
  states: z.array(sessionStateSchema).optional(),
  timeoutMs: z.number().int().positive().max(MAX_WAIT_MS).optional(),
  maxResultBytes: bytes.optional(),
  /** The part of an output that a model sees. The whole output can be read by the call's ID. */
  maxOutputBytes: bytes.optional(),
  /** Configuration for the tool itself, as `ctx.config`. */
  config: z.record(z.string(), z.unknown()).optional(),
  /** Whether equal calls are merged across all sessions; only for tools with effects `none`. */
  scope: z.enum(['session', 'global']).optional(),
  /** Missing values are those of `reliability.loopGuard`. */
  loopGuard: loopGuardSchema.optional(),
  /** The result of reusing a key with other parameters. */
  onConflict: z.enum(['refuse', 'independent']).optional(),
  /** Accept `dedupeMode: "disabled"` above the read-only tier. */
  allowDisabledDedupe: z.boolean().optional(),
  /** Missing values are those of `ttl`. */
  ttl: ttlSchema.optional(),
  /** The limits of the tool's calls in the whole fleet. */
  limits: limitSettingsSchema.optional(),
  /** For a tool with effects `once`; default: the setting `durability`. */
  durability: durability.optional(),
  retry: retryOverridesSchema
    .extend({
      /** The budget of all retries of the tool together, for each tenant: see `retry-budget.ts`. */
      budget: z
        .strictObject({
          ratio: z.number().min(0).max(1),
          floor: z.number().int().min(0),
          capacity: z.number().int().min(0),
          windowMs: keptMs,
        })
        .partial()
        .optional(),
    })
    .optional(),
  circuit: circuitOverridesSchema
    .extend({
      /** Refuse all calls of the tool while this is set. */
      forcedOpen: z.boolean().optional(),
    })
    .optional(),
});

export type ToolPolicy = z.output<typeof toolPolicySchema>;

/** The part of the settings that is about single tools. */
interface ToolSettings {
  readonly tools: Readonly<Record<string, ToolPolicy>>;
}

/** The operator's defaults for all tools. */
interface ToolDefaults {
  readonly defaults: { readonly circuit?: z.output<typeof circuitDefaultsSchema> | undefined };
}

const NO_POLICY: ToolPolicy = {};

/** The operator's settings for one tool: the qualified name's entry over the plain name's. */
export function toolPolicy(settings: ToolSettings, tool: ToolReference): ToolPolicy {
  // Most tools have none, and every call reads them several times.
  if (hasNoKeys(settings.tools)) return NO_POLICY;
  const plain = settings.tools[tool.name];
  const qualified = settings.tools[`${tool.namespace}.${tool.name}`];
  return plain === undefined && qualified === undefined ? NO_POLICY : { ...plain, ...defined(qualified ?? {}) };
}

/** The lifetimes of the records of a tool's calls: its own of `tools.NAME.ttl`, over those of `ttl`. */
export function ttlsOf(settings: ToolSettings & { readonly ttl: LedgerTtls }, tool: ToolReference): LedgerTtls {
  const { ttl } = toolPolicy(settings, tool);
  return ttl === undefined ? settings.ttl : { ...settings.ttl, ...defined(ttl) };
}

/** The policy of a tool's circuit. The operator's settings of the tool come first, then the tool's own, then the operator's defaults. */
export function circuitPolicyOf(
  settings: ToolSettings & ToolDefaults,
  tool: TieredTool & { readonly circuit: CircuitOverrides },
): CircuitPolicy {
  const { circuit } = toolPolicy(settings, tool);
  return circuitPolicy(tool.tier === 'read-only', tool.circuit, circuit, settings.defaults.circuit);
}

/** Whether equal calls of a tool are merged over all sessions or within one: only tools without effects can share calls. */
export function scopeOf(
  settings: ToolSettings,
  tool: ToolReference & { readonly effects?: Effects },
): 'session' | 'global' {
  return toolPolicy(settings, tool).scope === 'global' && tool.effects === 'none' ? 'global' : 'session';
}

function hasNoKeys(record: object): boolean {
  for (const _name in record) return false;
  return true;
}
