/** The operator's policy, the setting `policy` of the configuration file: one declarative document with five kinds of layers. */
import { z } from 'zod';
import { sessionStateSchema } from '../sessions/session.ts';
import { TIERS } from '../tools/tool.ts';
import { MAX_WAIT_MS } from '../util/time.ts';

/** The mildest decision first. */
export const POLICY_DECISIONS = ['allow', 'ask', 'deny'] as const;
export type PolicyDecision = (typeof POLICY_DECISIONS)[number];
const decision = z.enum(POLICY_DECISIONS);
const count = z.number().int().min(0).max(1_000_000);

/** The decision for commands that start with these words. */
const commandRuleSchema = z.strictObject({
  prefix: z.array(z.string().min(1)).min(1),
  decision,
  reason: z.string().max(500).optional(),
});

export const toolRuleSchema = z.strictObject({
  decision: decision.optional(),
  reason: z.string().max(500).optional(),
  /** Only sessions of these kinds may call the tool. */
  sessionKinds: z.array(z.enum(['main', 'branch', 'worker'])).optional(),
  /** Only while its session is in one of these states, which the session's owner sets, may a tool be called. */
  states: z.array(sessionStateSchema).optional(),
  commands: z.array(commandRuleSchema).optional(),
  /** The only hosts, paths (relative to the workspace) and methods; `*` stands for any text. */
  hosts: z.array(z.string().min(1)).optional(),
  paths: z.array(z.string().min(1)).optional(),
  methods: z.array(z.string().regex(/^[A-Z]+$/, 'must be in capital letters')).optional(),
  /** The most calls of one session: in a minute, in a turn, and in all (docs/budgets.md). */
  perMinute: count.optional(),
  perTurn: count.optional(),
  perSession: count.optional(),
});
export type ToolRule = z.output<typeof toolRuleSchema>;

const layerSchema = z.strictObject({
  tiers: z.partialRecord(z.enum(TIERS), decision).optional(),
  /** The key is a tool's name, `namespace.name`, or a pattern with `*`. */
  tools: z.record(z.string().min(1), z.union([decision, toolRuleSchema])).optional(),
  /** The decision for calls with side effects whose parameters may come from outside. */
  taint: decision.optional(),
});
export type PolicyLayer = z.output<typeof layerSchema>;

export const policySettingsSchema = z.strictObject({
  /** The time that a person has to decide. */
  approvalLimitMs: z.number().int().min(1).max(MAX_WAIT_MS).default(600_000),
  global: layerSchema.optional(),
  tenants: z.record(z.string(), layerSchema).default({}),
  agents: z.record(z.string(), layerSchema).default({}),
  /** The key is the kind of the channel that the session's requests reach (`channel-kinds.ts`), or `none`. */
  channels: z.record(z.string(), layerSchema).default({}),
  sessions: z.record(z.string(), layerSchema).default({}),
});
export type PolicySettings = z.output<typeof policySettingsSchema>;

/** The registry's record of a tool as a layer of policy, which only restricts. */
export interface ToolPolicyRecord {
  readonly enabled: boolean;
  readonly reason?: string;
  readonly rule?: ToolRule;
}
