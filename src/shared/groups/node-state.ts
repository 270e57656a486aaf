/** The states of a plan's nodes, and the keys of its calls. */
import type { Member } from './group.ts';
import type { AcceptedNode } from './plan.ts';

export type NodeState = 'waiting' | 'running' | 'success' | 'error' | 'skipped';

/** A decision about a node that its calls do not show. */
export interface NodeNote {
  readonly skipped?: string;
  /** The number of calls of its `forEach`. */
  readonly items?: number;
  /** It failed before a call was made. */
  readonly error?: { readonly code: string; readonly message: string };
}

export interface PlanPhase {
  readonly phase: 'stopping' | 'undoing';
  /** The node whose failure started the phase; absent where the plan was not approved. */
  readonly because?: string;
}

export function nodeField(name: string): string {
  return `node:${name}`;
}

export const PHASE_FIELD = 'phase';
export const UNDO = '/undo';
/** The key of the call that waits for the approval of the plan; no node has such a name. */
export const APPROVAL_KEY = '/approval';

/** The key of a node's call: `node`, or `node:3` for the item with index 3. */
export function memberKey(name: string, index?: number): string {
  return index === undefined ? name : `${name}:${index}`;
}

export function undoKey(key: string): string {
  return `${key}${UNDO}`;
}

export function nodeOf(key: string): string {
  return key.split(/[:/]/, 1)[0] ?? key;
}

export function nodeState(
  node: Pick<AcceptedNode, 'forEach'>,
  name: string,
  note: NodeNote | undefined,
  members: ReadonlyMap<string, Member>,
): { readonly state: NodeState; readonly unknown: boolean; readonly keys: readonly string[] } {
  if (note?.skipped !== undefined) return { state: 'skipped', unknown: false, keys: [] };
  const items = note?.items;
  if (note?.error !== undefined) {
    const startedKeys = memberKeys(name, items ?? 0).filter((key) => members.has(key));
    return { state: 'error', unknown: startedKeys.some((key) => mayHaveHappened(members, key)), keys: startedKeys };
  }
  if (node.forEach !== undefined && items === undefined) return { state: 'waiting', unknown: false, keys: [] };
  const keys = items === undefined ? [name] : memberKeys(name, items);
  const ends = keys.map((key) => members.get(key)?.end);
  const unknown = keys.some((key) => mayHaveHappened(members, key));
  const hasStarted = keys.some((key) => members.has(key));
  if (ends.every((end) => end?.status === 'success')) return { state: 'success', unknown, keys };
  if (ends.every((end) => end !== undefined)) return { state: 'error', unknown, keys };
  return { state: hasStarted || items !== undefined ? 'running' : 'waiting', unknown, keys };
}

/** The keys of the calls of a `forEach` node. */
export function memberKeys(name: string, items: number): string[] {
  return Array.from({ length: items }, (_, index) => memberKey(name, index));
}

function mayHaveHappened(members: ReadonlyMap<string, Member>, key: string): boolean {
  return members.get(key)?.end?.mayHaveHappened === true;
}
