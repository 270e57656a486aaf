import { expect, test } from 'vitest';
import { irreversibleNodes } from '../../../src/shared/groups/check-plan.ts';

type Node = Parameters<typeof irreversibleNodes>[1][string];

const change: Node = { params: {}, effects: 'once' };
const undo: Node = { ...change, onFailure: 'undo' };

test.each<[case_: string, nodes: Record<string, Node>, irreversible: string[]]>([
  ['nothing is undone', { a: change, b: { ...change, onFailure: 'stop' } }, []],
  ['a node before the one that fails', { a: change, b: { ...undo, after: ['a'] } }, ['a']],
  ['a node beside it', { a: undo, b: change }, ['b']],
  ['a tool that compensates', { a: { ...change, compensates: true }, b: undo }, []],
  ['a tool that reads', { a: { ...change, effects: 'none' }, b: undo }, []],
  ['a node behind all that undo', { a: undo, b: { ...change, after: ['a'] }, c: { ...change, after: ['b'] } }, []],
  ['a node behind one of two', { a: undo, b: undo, c: { ...change, after: ['a'] } }, ['a', 'b', 'c']],
  ['the other calls of a forEach', { a: change, b: { ...undo, forEach: { $from: 'a.list' } } }, ['a', 'b']],
  ['a chain', { a: undo, b: { ...undo, after: ['a'] }, c: { ...undo, after: ['b'] } }, ['a', 'b']],
])('nodes that stay when a plan is undone: %s', (_, nodes, irreversible) => {
  expect([...irreversibleNodes(Object.keys(nodes), nodes)]).toEqual(irreversible);
});
