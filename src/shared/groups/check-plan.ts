/** Checks a plan before anything runs: its graph, its references, and its parameters as far as they are known. All issues at once. */
import type { Issue } from '../errors/failure.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import type { Validator } from '../schema/validator.ts';
import { startOf } from '../util/text/text-cut.ts';
import { conditionsOf, type PlanNode, type PlanNodes, RESERVED_NAMES } from './plan.ts';
import { type FoundReference, parseReference, referencesIn, resolveReferences } from './references.ts';
import { alternativesAt, mayFit, typesOf } from './schema-paths.ts';

export interface PlanTool {
  readonly name: string;
  readonly inputSchema: JsonSchema;
  readonly outputSchema?: JsonSchema;
  readonly validate: Validator;
}

export interface CheckedPlan {
  readonly issues: readonly Issue[];
  /** The nodes' names, each behind those that it needs. */
  readonly order: readonly string[];
}

/** `tools`: by node; a node whose tool is unknown has none. */
export async function checkPlan(nodes: PlanNodes, tools: ReadonlyMap<string, PlanTool>): Promise<CheckedPlan> {
  const issues: Issue[] = [];
  for (const name of Object.keys(nodes)) issues.push(...(await checkNode(nodes, name, tools)));
  const { order, left } = sorted(nodes);
  if (left.length > 0 && issues.every(({ message }) => !message.includes('itself')))
    issues.push({ path: `nodes.${left[0]}`, message: `stands in a cycle: ${left.slice(0, 20).join(', ')}` });
  return { issues, order };
}

/** The nodes that must have ended before a node may begin. */
export function needsOf(node: PlanNode): ReadonlySet<string> {
  const { references } = referencesIn(node.params);
  const each = node.forEach === undefined ? [] : [parseReference(node.forEach).node];
  const own = references.map((reference) => reference.node).filter((name) => !isReserved(name));
  return new Set([...(node.after ?? []), ...each, ...conditionsOf(node).map((condition) => condition.node), ...own]);
}

function isReserved(name: string): boolean {
  return (RESERVED_NAMES as readonly string[]).includes(name);
}

async function checkNode(nodes: PlanNodes, name: string, tools: ReadonlyMap<string, PlanTool>): Promise<Issue[]> {
  const node = nodes[name] as PlanNode;
  const at = `nodes.${name}`;
  const issues: Issue[] = [];
  if (isReserved(name)) issues.push({ path: at, message: `is a reserved name (${RESERVED_NAMES.join(', ')})` });
  const known = (other: string, path: string) => {
    if (other === name) issues.push({ path, message: 'refers to its node itself' });
    else if (!Object.hasOwn(nodes, other))
      issues.push({ path, message: `there is no node ${JSON.stringify(startOf(other, 64))}` });
  };
  for (const [index, other] of (node.after ?? []).entries()) known(other, `${at}.after.${index}`);
  for (const condition of conditionsOf(node)) {
    known(condition.node, `${at}.when.node`);
    const stops = nodes[condition.node]?.onFailure;
    if ((condition.is === 'error' || condition.is === 'unknown') && (stops === 'stop' || stops === 'undo'))
      issues.push({
        path: `${at}.when`,
        message: `can never be: when ${condition.node} fails, its onFailure ${JSON.stringify(stops)} ends the plan`,
      });
  }
  const { references, malformed } = referencesIn(node.params);
  for (const place of malformed)
    issues.push({
      path: [at, 'params', ...place].join('.'),
      message: 'must be { $from: "node.path" } and nothing else; { $literal: … } takes a value as it is',
    });
  issues.push(...checkForEach(nodes, name, tools, known));
  for (const reference of references) issues.push(...checkReference(nodes, name, reference, { tools, known }));
  const tool = tools.get(name);
  if (tool !== undefined) issues.push(...(await checkKnownParams(node, tool, references, at)));
  return issues;
}

type Known = (other: string, path: string) => void;

function checkForEach(nodes: PlanNodes, name: string, tools: ReadonlyMap<string, PlanTool>, known: Known): Issue[] {
  const { forEach } = nodes[name] as PlanNode;
  if (forEach === undefined) return [];
  const { node, path } = parseReference(forEach);
  const at = `nodes.${name}.forEach`;
  known(node, at);
  const schemas = outputAt(nodes, tools, node, path);
  if (schemas !== 'any' && schemas.length === 0)
    return [{ path: at, message: `the output of ${node} cannot have ${path.join('.')}` }];
  const types = typesOf(schemas);
  return types === undefined || types.has('array')
    ? []
    : [{ path: at, message: `must be a list; ${[node, ...path].join('.')} is ${[...types].join(' or ')}` }];
}

function outputAt(nodes: PlanNodes, tools: ReadonlyMap<string, PlanTool>, node: string, path: readonly string[]) {
  const output = tools.get(node)?.outputSchema;
  if (output === undefined) return 'any';
  if (nodes[node]?.forEach === undefined) return alternativesAt(output, path);
  const [place, ...rest] = path;
  if (place === undefined) return [{ type: 'array' }];
  return /^\d{1,9}$/.test(place) ? alternativesAt(output, rest) : [];
}

function checkReference(
  nodes: PlanNodes,
  name: string,
  { at, node, path }: FoundReference,
  { tools, known }: { readonly tools: ReadonlyMap<string, PlanTool>; readonly known: Known },
): Issue[] {
  const place = ['nodes', name, 'params', ...at].join('.');
  const { forEach } = nodes[name] as PlanNode;
  if (isReserved(node) && forEach === undefined)
    return [{ path: place, message: `refers to ${node}, and its node has no forEach` }];
  if (!isReserved(node)) known(node, place);
  const list = forEach === undefined ? undefined : parseReference(forEach);
  const given =
    node === 'index'
      ? [{ type: 'integer' }]
      : node === 'item' && list !== undefined
        ? outputAt(nodes, tools, list.node, [...list.path, '0', ...path])
        : outputAt(nodes, tools, node, path);
  const said = [node, ...path].join('.');
  if (given !== 'any' && given.length === 0)
    return [{ path: place, message: `${said} cannot exist: see the output schema of the tool` }];
  const expected = alternativesAt(tools.get(name)?.inputSchema, at);
  if (expected !== 'any' && expected.length === 0) return [{ path: place, message: `the tool has no such parameter` }];
  const words = (schemas: typeof given) => [...(typesOf(schemas) ?? [])].join(' or ');
  return mayFit(given, expected)
    ? []
    : [{ path: place, message: `must be ${words(expected)}; ${said} is ${words(given)}` }];
}

/** The parameters against their schema. What a reference stands for is not known, and is no issue. */
async function checkKnownParams(
  node: PlanNode,
  tool: PlanTool,
  references: readonly FoundReference[],
  at: string,
): Promise<Issue[]> {
  const open = references.map((reference) => reference.at.join('.'));
  const isOpen = (path: string) =>
    open.some((place) => path === place || path.startsWith(`${place}.`) || path === '' || place.startsWith(`${path}.`));
  const issues = await tool.validate(resolveReferences(node.params, () => null));
  return issues
    .filter(({ path }) => open.length === 0 || !isOpen(path))
    .map(({ path, message }) => ({ path: [at, 'params', ...(path === '' ? [] : [path])].join('.'), message }));
}

/** Each node behind those that it needs; `left` are those that no order has. */
function sorted(nodes: PlanNodes): { readonly order: readonly string[]; readonly left: readonly string[] } {
  const missing = new Map<string, number>();
  const dependents = new Map(Object.keys(nodes).map((name) => [name, [] as string[]]));
  for (const [name, node] of Object.entries(nodes)) {
    const needs = [...needsOf(node)].filter((other) => dependents.has(other));
    missing.set(name, needs.length);
    for (const other of needs) dependents.get(other)?.push(name);
  }
  const order = [...missing].filter(([, count]) => count === 0).map(([name]) => name);
  for (const name of order)
    for (const dependent of dependents.get(name) ?? []) {
      const count = (missing.get(dependent) ?? 0) - 1;
      missing.set(dependent, count);
      if (count === 0) order.push(dependent);
    }
  const done = new Set(order);
  return { order, left: Object.keys(nodes).filter((name) => !done.has(name)) };
}
