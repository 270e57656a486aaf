/** A plan: a graph whose nodes are calls. A node's parameters may refer to the outputs of other nodes. */
import { z } from 'zod';
import { idempotencyKeySchema, laterParamsSchema, type ToolCallEnvelope } from '../calls/envelope.ts';
import type { Effects } from '../retries/effects.ts';
import { type AnyTool, isTool, qualifiedName, type TieredTool } from '../tools/tool.ts';
import { isObject } from '../util/json/json-types.ts';
import { MAX_WAIT_MS } from '../util/time.ts';
import { MAX_MEMBERS } from './group.ts';

/** `error` is every end but a success; `unknown` is one that may have had its effect; `ended` is each of them. */
const PLAN_OUTCOMES = ['success', 'error', 'unknown', 'skipped', 'ended'] as const;

/** The largest number of items of a `forEach`. */
export const MAX_ITEMS = 1_000;
/** The names by which references read the item of a `forEach` and its index. */
export const RESERVED_NAMES = ['item', 'index'] as const;

const nameSchema = z.string().max(64);
const referenceSchema = z.strictObject({ $from: z.union([z.string().min(1), z.array(z.string()).min(1)]) });
const conditionSchema = z.strictObject({ node: nameSchema, is: z.enum(PLAN_OUTCOMES) });

const NAME_RULE = 'must begin with a letter or "_", and have at most 64 letters, digits, "_" and "-"';

const planNodeSchema = z.strictObject({
  /** `name` or `namespace.name`. */
  tool: z.string().min(1).max(256),
  params: laterParamsSchema()
    .refine(
      (params) => !Object.hasOwn(params, '$from'),
      'must be an object of parameters: a reference stands for the value of one of them',
    )
    .default({}),
  /** Nodes that must have succeeded before. */
  after: z.array(nameSchema).max(MAX_MEMBERS).optional(),
  /** Makes one call for each item of a list. */
  forEach: referenceSchema.optional(),
  /** The required ends of other nodes, which replace the rule that they must succeed. */
  when: z.union([conditionSchema, z.array(conditionSchema).min(1).max(100)]).optional(),
  onFailure: z.enum(['stop', 'continue', 'undo']).optional(),
  timeoutMs: z.number().int().positive().max(MAX_WAIT_MS).optional(),
});

export const planSchema = z.strictObject({
  nodes: z
    .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_-]{0,63}$/, NAME_RULE), planNodeSchema)
    .refine((nodes) => Object.keys(nodes).length >= 1, 'must have a node')
    .refine((nodes) => Object.keys(nodes).length <= MAX_MEMBERS, `must have at most ${MAX_MEMBERS} nodes`),
  /** The same key in the same session is the same plan; other nodes under it are a conflict. */
  idempotencyKey: idempotencyKeySchema.optional(),
  /** The number of its calls that are in flight at a time. */
  concurrency: z.number().int().min(1).max(MAX_MEMBERS).optional(),
});

/** A plan, as its owner submits it. A node has a tool or the name of one. */
export interface NewPlan extends Omit<z.input<typeof planSchema>, 'nodes'> {
  nodes: Record<string, Omit<z.input<typeof planNodeSchema>, 'tool'> & { readonly tool: AnyTool | string }>;
}

/** The same plan with the name of each tool. `planSchema` reports its faults. */
export function withToolNames(plan: unknown): unknown {
  const { nodes } = (plan ?? {}) as { readonly nodes?: unknown };
  if (!isObject(nodes)) return plan;
  const entries = Object.entries(nodes as Readonly<Record<string, { readonly tool?: unknown } | null>>).map(
    ([name, node]) => [name, isTool(node?.tool) ? { ...node, tool: qualifiedName(node.tool) } : node],
  );
  return { ...(plan as object), nodes: Object.fromEntries(entries) };
}

export type PlanNode = z.output<typeof planNodeSchema>;
export type PlanNodes = Readonly<Record<string, PlanNode>>;
export type Condition = z.output<typeof conditionSchema>;
export type Reference = z.output<typeof referenceSchema>;

export interface AcceptedNode extends PlanNode, TieredTool {
  readonly version: string;
  /** The digest of the tool's definition. */
  readonly definition: string;
  readonly effects: Effects;
  /** Its tool has a `compensate`. */
  readonly compensates?: true;
  /** The reason for an approval of its calls; absent where none is needed. */
  readonly asks?: ApprovalReason;
}

/** The policy's reason for an approval of a node. */
export interface ApprovalReason {
  readonly rule: string;
  readonly reason: string;
  /** Its programs would run outside of the sandbox. */
  readonly unconfined?: true;
}

export interface PlanDefinition {
  readonly target: ToolCallEnvelope['target'];
  readonly nodes: Readonly<Record<string, AcceptedNode>>;
  /** The nodes' names in topological order. */
  readonly order: readonly string[];
  readonly concurrency: number;
}

export const DEFAULT_PLAN_CONCURRENCY = 100;

export const PLAN_STATES = [
  'awaiting-approval',
  'running',
  'stopping',
  'undoing',
  'cancelling',
  'done',
  'failed',
  'undone',
  'cancelled',
] as const;
export type PlanState = (typeof PLAN_STATES)[number];

export function conditionsOf({ when }: Pick<PlanNode, 'when'>): readonly Condition[] {
  if (when === undefined) return [];
  return Array.isArray(when) ? when : [when];
}
