/** Checks a plan before anything runs: its graph, its references, and its known parameters. Returns all issues at once. */
import type { Issue } from '../errors/failure.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import type { Validator } from '../schema/validator.ts';
import { startOf } from '../util/text/text-cut.ts';
import { type AcceptedNode, conditionsOf, type PlanNode, type PlanNodes, RESERVED_NAMES } from './plan.ts';
import { ReadyNodes } from './ready-nodes.ts';
import { type FoundReference, parseReference, referencesIn, resolveReferences } from './references.ts';
import { alternativesAt, mayMatch, type PossibleSchemas, typesOf } from './schema-paths.ts';

interface PlanTool {
  readonly inputSchema: JsonSchema;
  readonly outputSchema?: JsonSchema;
  readonly validate: Validator;
}

interface CheckedPlan {
  readonly issues: readonly Issue[];
  /** The nodes' names in topological order. */
  readonly order: readonly string[];
}

/** `tools`: by node; a node whose tool is unknown has none. */
export async function checkPlan(nodes: PlanNodes, tools: ReadonlyMap<string, PlanTool>): Promise<CheckedPlan> {
  const issues: Issue[] = [];
  for (const name of Object.keys(nodes)) issues.push(...(await checkNode(nodes, name, tools)));
  const { order, cyclic } = topologicalOrder(nodes);
  if (cyclic.length > 0 && issues.every(({ message }) => !message.includes('itself')))
    issues.push({ path: `nodes.${cyclic[0]}`, message: `stands in a cycle: ${cyclic.slice(0, 20).join(', ')}` });
  return { issues, order };
}

/** The nodes that must have ended before a node may begin. */
export function dependenciesOf(node: Omit<PlanNode, 'tool'>): ReadonlySet<string> {
  const listed = node.forEach === undefined ? [] : [parseReference(node.forEach)];
  const referenced = referencesIn(node.params).references.filter((reference) => !isReserved(reference.node));
  const others = [...listed, ...conditionsOf(node), ...referenced].map((each) => each.node);
  return new Set([...(node.after ?? []), ...others]);
}

/**
 * The nodes with an effect that a failure of another node would leave undone, because their tools have no `compensate`. A node that begins
 * only after an `undo` node has succeeded has made no call when that node fails.
 *
 * `order`: the nodes' names in topological order.
 */
export function irreversibleNodes(
  order: readonly string[],
  nodes: Readonly<Record<string, Omit<PlanNode, 'tool'> & Pick<AcceptedNode, 'effects' | 'compensates'>>>,
): ReadonlySet<string> {
  const undoing = order.filter((name) => nodes[name]?.onFailure === 'undo');
  // Sets of `undo` nodes are bits: a plan may have a thousand of them.
  const bits = new Map(undoing.map((name, index) => [name, 1n << BigInt(index)]));
  const all = (1n << BigInt(undoing.length)) - 1n;
  const irreversible = new Set<string>();
  /** The `undo` nodes that have succeeded when a node begins. */
  const passed = new Map<string, bigint>();
  for (const name of undoing.length === 0 ? [] : order) {
    const node = nodes[name];
    if (node === undefined) continue;
    let before = 0n;
    for (const need of dependenciesOf(node)) before |= (passed.get(need) ?? 0n) | (bits.get(need) ?? 0n);
    passed.set(name, before);
    // A single call that failed needs no undoing.
    const own = node.forEach === undefined ? (bits.get(name) ?? 0n) : 0n;
    const mayBeUndone = (before | own) !== all;
    if (mayBeUndone && node.effects !== 'none' && node.compensates !== true) irreversible.add(name);
  }
  return irreversible;
}

function isReserved(name: string): boolean {
  return (RESERVED_NAMES as readonly string[]).includes(name);
}

async function checkNode(nodes: PlanNodes, name: string, tools: ReadonlyMap<string, PlanTool>): Promise<Issue[]> {
  const node = nodes[name] as PlanNode;
  const nodePath = `nodes.${name}`;
  const issues: Issue[] = [];
  if (isReserved(name)) issues.push({ path: nodePath, message: `is a reserved name (${RESERVED_NAMES.join(', ')})` });
  const checkNodeExists = (otherName: string, path: string) => {
    if (otherName === name) issues.push({ path, message: 'refers to its node itself' });
    else if (!Object.hasOwn(nodes, otherName))
      issues.push({ path, message: `there is no node ${JSON.stringify(startOf(otherName, 64))}` });
  };
  for (const [index, otherName] of (node.after ?? []).entries())
    checkNodeExists(otherName, `${nodePath}.after.${index}`);
  for (const condition of conditionsOf(node)) {
    checkNodeExists(condition.node, `${nodePath}.when.node`);
    const stops = nodes[condition.node]?.onFailure;
    if ((condition.is === 'error' || condition.is === 'unknown') && (stops === 'stop' || stops === 'undo'))
      issues.push({
        path: `${nodePath}.when`,
        message: `can never be: when ${condition.node} fails, its onFailure ${JSON.stringify(stops)} ends the plan`,
      });
  }
  const { references, malformed } = referencesIn(node.params);
  for (const location of malformed)
    issues.push({
      path: [nodePath, 'params', ...location].join('.'),
      message: 'must be { $from: "node.path" } or { $literal: … }, which takes a value as it is, and nothing else',
    });
  issues.push(...contradictions(nodes, name, references));
  issues.push(...checkForEach(nodes, name, tools, checkNodeExists));
  for (const reference of references)
    issues.push(...checkReference(nodes, name, reference, { tools, checkNodeExists }));
  const tool = tools.get(name);
  if (tool !== undefined) issues.push(...(await checkKnownParams(node, tool, references, nodePath)));
  return issues;
}

/** Conditions of `when` that cannot hold together, or that rule out what the node needs: it would never run. */
function contradictions(nodes: PlanNodes, name: string, references: readonly FoundReference[]): Issue[] {
  const node = nodes[name] as PlanNode;
  const { after = [], forEach } = node;
  const nodePath = `nodes.${name}`;
  const uses = references.map((reference) => ({ ...reference, at: ['params', ...reference.location] }));
  if (forEach !== undefined) uses.push({ ...parseReference(forEach), location: [], at: ['forEach'] });
  const issues: Issue[] = [];
  for (const [other, conditions] of Map.groupBy(conditionsOf(node), (condition) => condition.node)) {
    const ends = new Set(conditions.map(({ is }) => (is === 'unknown' ? 'error' : is)).filter((is) => is !== 'ended'));
    const impossible = `can never be: ${other} has one of ${[...ends].join(' and ')}`;
    if (ends.size > 1) issues.push({ path: `${nodePath}.when`, message: impossible });
    if (after.includes(other) && !ends.has('success'))
      issues.push({
        path: `${nodePath}.after.${after.indexOf(other)}`,
        message: `means that ${other} has succeeded, and when says otherwise: give one of them`,
      });
    const hasNoOutput = ends.has('skipped') || (ends.has('error') && nodes[other]?.forEach === undefined);
    const message = `has no value: when says that ${other} has not succeeded`;
    for (const { at } of hasNoOutput ? uses.filter((use) => use.node === other) : [])
      issues.push({ path: [nodePath, ...at].join('.'), message });
  }
  return issues;
}

type NodeCheck = (otherName: string, path: string) => void;

function checkForEach(
  nodes: PlanNodes,
  name: string,
  tools: ReadonlyMap<string, PlanTool>,
  checkNodeExists: NodeCheck,
): Issue[] {
  const { forEach } = nodes[name] as PlanNode;
  if (forEach === undefined) return [];
  const { node, path } = parseReference(forEach);
  const forEachPath = `nodes.${name}.forEach`;
  checkNodeExists(node, forEachPath);
  const schemas = outputAt(nodes, tools, node, path);
  if (schemas !== 'any' && schemas.length === 0)
    return [{ path: forEachPath, message: `the output of ${node} cannot have ${path.join('.')}` }];
  const types = typesOf(schemas);
  return types === undefined || types.has('array')
    ? []
    : [{ path: forEachPath, message: `must be a list; ${[node, ...path].join('.')} is ${[...types].join(' or ')}` }];
}

function outputAt(nodes: PlanNodes, tools: ReadonlyMap<string, PlanTool>, node: string, path: readonly string[]) {
  const output = tools.get(node)?.outputSchema;
  if (output === undefined) return 'any';
  if (nodes[node]?.forEach === undefined) return alternativesAt(output, path);
  const [index, ...rest] = path;
  if (index === undefined) return [{ type: 'array' }];
  return /^\d{1,9}$/.test(index) ? alternativesAt(output, rest) : [];
}

function knownMembers(schemas: PossibleSchemas): string {
  const names = schemas === 'any' ? [] : schemas.flatMap(({ properties }) => Object.keys(properties ?? {}));
  return names.length === 0 ? ': see the output schema of the tool' : `. Allowed: ${names.join(', ')}`;
}

function checkReference(
  nodes: PlanNodes,
  name: string,
  { location, node, path }: FoundReference,
  { tools, checkNodeExists }: { readonly tools: ReadonlyMap<string, PlanTool>; readonly checkNodeExists: NodeCheck },
): Issue[] {
  const issuePath = ['nodes', name, 'params', ...location].join('.');
  const { forEach } = nodes[name] as PlanNode;
  if (isReserved(node) && forEach === undefined)
    return [{ path: issuePath, message: `refers to ${node}, and its node has no forEach` }];
  if (!isReserved(node)) checkNodeExists(node, issuePath);
  const list = forEach === undefined ? undefined : parseReference(forEach);
  const schemasAt = (below: readonly string[]) =>
    node === 'index'
      ? [{ type: 'integer' }]
      : node === 'item' && list !== undefined
        ? outputAt(nodes, tools, list.node, [...list.path, '0', ...below])
        : outputAt(nodes, tools, node, below);
  const actual = schemasAt(path);
  const referenceText = [node, ...path].join('.');
  if (actual !== 'any' && actual.length === 0)
    return [{ path: issuePath, message: `${referenceText} cannot exist${knownMembers(schemasAt(path.slice(0, -1)))}` }];
  const expected = alternativesAt(tools.get(name)?.inputSchema, location);
  if (expected !== 'any' && expected.length === 0)
    return [{ path: issuePath, message: `the tool has no such parameter` }];
  const typeNames = (schemas: typeof actual) => [...(typesOf(schemas) ?? [])].join(' or ');
  return mayMatch(actual, expected)
    ? []
    : [{ path: issuePath, message: `must be ${typeNames(expected)}; ${referenceText} is ${typeNames(actual)}` }];
}

/** Checks the parameters by their schema, except for values of references, which are not known yet. */
async function checkKnownParams(
  node: PlanNode,
  tool: PlanTool,
  references: readonly FoundReference[],
  nodePath: string,
): Promise<Issue[]> {
  const unresolved = references.map((reference) => reference.location.join('.'));
  const isUnresolved = (path: string) =>
    unresolved.some(
      (place) => path === place || path.startsWith(`${place}.`) || path === '' || place.startsWith(`${path}.`),
    );
  const issues = await tool.validate(resolveReferences(node.params, () => null));
  return issues
    .filter(({ path }) => unresolved.length === 0 || !isUnresolved(path))
    .map(({ path, message }) => ({ path: [nodePath, 'params', ...(path === '' ? [] : [path])].join('.'), message }));
}

/** Sorts nodes behind their dependencies; `cyclic` are those in cycles and behind them. */
function topologicalOrder(nodes: PlanNodes): { readonly order: readonly string[]; readonly cyclic: readonly string[] } {
  const names = Object.keys(nodes);
  const needs = new Map(Object.entries(nodes).map(([name, node]) => [name, dependenciesOf(node)]));
  const ready = new ReadyNodes(needs, { waiting: names, open: names });
  const order: string[] = [];
  while (ready.hasReady)
    for (const name of ready.takeReady()) {
      order.push(name);
      ready.ended(name);
    }
  const done = new Set(order);
  return { order, cyclic: names.filter((name) => !done.has(name)) };
}
