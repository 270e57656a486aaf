import { expect, test } from 'vitest';
import { type ApprovalRequest, buildDecision, digestOf } from '../../../src/shared/approvals/approval.ts';
import {
  isPlanAsShown,
  type PlannedRun,
  planMismatch,
  plannedNodeRequest,
  planPreview,
  shownPlan,
} from '../../../src/shared/approvals/plan-approval.ts';
import type { AcceptedNode, PlanDefinition } from '../../../src/shared/groups/plan.ts';
import { canonicalJson, digest } from '../../../src/shared/schema/canonical-json.ts';

const tool = {
  namespace: 'tools',
  name: 'book',
  version: '1.0.0',
  definition: 'd1',
  tier: 'elevated',
  effects: 'once',
} as const;
const asks = { rule: 'built-in', reason: 'elevated tools need approval' };

function node(params: object, more: Partial<AcceptedNode> = {}): AcceptedNode {
  return { tool: 'book', ...tool, params: params as AcceptedNode['params'], asks, ...more };
}

const definition: PlanDefinition = {
  target: { sessionKey: 's', actorId: 'ada' },
  order: ['list', 'one', 'each'],
  concurrency: 100,
  nodes: {
    list: { ...node({}), asks: undefined } as unknown as AcceptedNode,
    one: node({ city: { $from: 'list.home' }, seat: 7, note: { $literal: { $from: 'x' } }, skip: null }),
    each: node(
      { city: { $from: 'item' }, seats: [1, { $from: 'index' }] },
      { forEach: { $from: 'list.all' }, onFailure: 'undo' },
    ),
  },
};

function requestFor(plan: PlanDefinition): ApprovalRequest {
  const params = shownPlan('p1', plan) as unknown as ApprovalRequest['params'];
  return {
    id: 'e0.gate.1',
    callId: 'e0.gate',
    generation: '1',
    plan: 'p1',
    tool: {
      namespace: 'pawl',
      name: 'plan',
      version: '1',
      definition: 'x',
      tier: 'elevated',
      effects: 'once',
      annotations: {},
    },
    params,
    paramsDigest: digest(canonicalJson(params)),
    session: { key: 's', kind: 'main', workspaceRoot: '/', actorId: 'ada' },
    actorId: 'ada',
    taint: ['tools.web'],
    ...asks,
    route: { sessionKey: 's', channel: { kind: 'operator' } },
    createdAtMs: 1,
    expiresAtMs: 1_000,
  };
}

const request = requestFor(definition);
const decision = buildDecision(
  request,
  { decision: 'approve', digest: digestOf(request), by: 'grace', paramsDigest: request.paramsDigest },
  500,
);
const one: PlannedRun = {
  key: 'one',
  idempotencyKey: 'p1:one',
  callId: 'e0.call',
  tool: { ...tool, annotations: {} },
  params: { city: 'Bern', seat: 7, note: { $from: 'x' } },
  session: request.session,
  actorId: 'ada',
  nowMs: 600,
  escalates: (params) => params['sandbox_permissions'] === 'require_escalated',
};
const each: PlannedRun = {
  ...one,
  key: 'each:3',
  idempotencyKey: 'p1:each:3',
  params: { city: 'Oslo', seats: [1, 3] },
};
const mismatch = (run: PlannedRun) => planMismatch(request, decision, run);

test('a decision on a plan covers each call of its nodes, and what undoes them', () => {
  expect(isPlanAsShown(request)).toBe(true);
  expect(mismatch(one)).toBeUndefined();
  expect(mismatch({ ...one, params: { ...one.params, skip: null } })).toBeUndefined();
  expect(mismatch(each)).toBeUndefined();
  expect(mismatch({ ...each, key: 'each:3/undo' })).toBeUndefined();
  expect(mismatch({ ...one, askedForTaint: ['tools.web'] })).toBeUndefined();
});

test('a decision on a plan covers nothing that it did not show', () => {
  const refused: readonly [string, Partial<PlannedRun>][] = [
    ['the parameters', { params: { ...one.params, seat: 8 } }],
    ['the parameters', { params: { ...one.params, more: 1 } }],
    ['the parameters', { params: { city: 'Bern', note: { $from: 'x' } } }],
    ['the parameters', { params: { ...one.params, note: { $from: 'y' } } }],
    ['the parameters', { params: { ...one.params, skip: 1 } }],
    ['another plan', { key: 'two', idempotencyKey: 'p1:two' }],
    ['another plan', { key: '__proto__', idempotencyKey: 'p1:__proto__' }],
    ['not the call of its node', { idempotencyKey: 'p1:each:1' }],
    ['not the call of its node', { idempotencyKey: undefined }],
    ['not asked about', { key: 'list', idempotencyKey: 'p1:list', params: {} }],
    ['has changed', { tool: { ...one.tool, definition: 'd2' } }],
    ['has changed', { tool: { ...one.tool, name: 'rob' } }],
    ['has changed', { session: { ...one.session, workspaceRoot: '/etc' } }],
    ['has changed', { actorId: 'eve' }],
    ['another tenant', { tenantId: 't' }],
    ['sources', { askedForTaint: ['tools.mail'] }],
    ['outside of the sandbox', { unconfined: true }],
    ['too old', { nowMs: 500 + 24 * 3_600_000 + 1 }],
  ];
  for (const [why, change] of refused) expect(mismatch({ ...one, ...change }), why).toContain(why);
  const escalating = { sandbox_permissions: { $from: 'list.home' } };
  const wide = requestFor({ ...definition, nodes: { ...definition.nodes, one: node(escalating) } });
  const approved = buildDecision(
    wide,
    { decision: 'approve', digest: digestOf(wide), by: 'grace', paramsDigest: wide.paramsDigest },
    500,
  );
  const run = { ...one, params: { sandbox_permissions: 'require_escalated' } };
  expect(planMismatch(wide, approved, run)).toContain('more than its node shows');
});

test('a plan with another node, tool, parameter or edge has another digest', () => {
  const changes: readonly AcceptedNode[] = [
    node({ city: { $from: 'list.other' }, seat: 7 }),
    node(definition.nodes['one']?.params ?? {}, { after: ['list'] }),
    node(definition.nodes['one']?.params ?? {}, { onFailure: 'continue' }),
    node(definition.nodes['one']?.params ?? {}, { when: { node: 'list', is: 'ended' } }),
    node(definition.nodes['one']?.params ?? {}, { definition: 'd2' }),
  ];
  const digests = changes.map((changed) =>
    digestOf(requestFor({ ...definition, nodes: { ...definition.nodes, one: changed } })),
  );
  expect(new Set([digestOf(request), ...digests]).size).toBe(changes.length + 1);
  const forged = { ...request, params: requestFor({ ...definition, concurrency: 1 }).params };
  expect(isPlanAsShown(forged)).toBe(false);
});

test('a plan without a node that undoes covers no call that undoes', () => {
  const { each: last, ...others } = definition.nodes;
  const plan = requestFor({
    ...definition,
    nodes: { ...others, each: { ...(last as AcceptedNode), onFailure: 'stop' } },
  });
  const approved = buildDecision(
    plan,
    { decision: 'approve', digest: digestOf(plan), by: 'grace', paramsDigest: plan.paramsDigest },
    500,
  );
  expect(planMismatch(plan, approved, { ...each, key: 'each:3/undo' })).toContain('undoes nothing');
});

test('the preview of a plan says what each node would do', () => {
  const { summary, details } = planPreview(request);
  expect(summary).toBe('Run a plan of 3 nodes, of which 2 need this approval: one, each');
  expect(details.split('\n')).toEqual([
    '1. list: tools.book 1.0.0 (elevated, effects once)',
    '   cannot be undone: its tool has no compensate',
    '   with {}',
    '2. one: tools.book 1.0.0 (elevated, effects once), needs this approval',
    '   cannot be undone: its tool has no compensate',
    '   with {"city":{"$from":"list.home"},"seat":7,"note":{"$literal":{"$from":"x"}},"skip":null}',
    '3. each: tools.book 1.0.0 (elevated, effects once), needs this approval',
    '   for each of list.all',
    '   when it fails: all that was done is undone, the last first',
    '   cannot be undone: its tool has no compensate',
    '   with {"city":{"$from":"item"},"seats":[1,{"$from":"index"}]}',
  ]);
});

test('a node’s own request, for another run of its call, is about that call alone', () => {
  const own = plannedNodeRequest(request, { callId: 'e0.call', tool: one.tool, params: one.params });
  expect(own).toMatchObject({ callId: 'e0.call', params: one.params });
  expect(own.plan).toBeUndefined();
});
