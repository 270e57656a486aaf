import { expect, test, vi } from 'vitest';
import type { ApprovalRequest } from '../../../../src/shared/approvals/approval.ts';
import type { ToolCallEnvelope } from '../../../../src/shared/calls/envelope.ts';
import { canonicalJson, digest } from '../../../../src/shared/schema/canonical-json.ts';
import { Signer } from '../../../../src/shared/signing/signature.ts';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import { StandingApprovals } from '../../../../src/shared/store/approvals/standing-approvals.ts';
import { FleetKeys } from '../../../../src/shared/store/redis/keys.ts';
import { openBooks } from '../calls.ts';

const SESSION = 'session';
const TOOL = { namespace: 'tools', name: 'transfer', version: '1.0.0', definition: 'digest' };
const HOURS_12_MS = 12 * 3_600_000;

async function open() {
  const { redis, world } = await openBooks();
  const signatures = new Signatures(new Signer([{ kid: 'k', key: 'a key of this fleet alone' }]));
  return {
    redis,
    standingApprovals: new StandingApprovals(redis, world.prefix, signatures),
    key: new FleetKeys(world.prefix).standingApprovals(SESSION),
  };
}

function approved(id: string, params: object, taint: readonly string[] = []): ApprovalRequest {
  const amendment = { kind: 'same-parameters', paramsDigest: digest(canonicalJson(params)) };
  return { id, session: { key: SESSION }, tool: TOOL, amendment, taint } as unknown as ApprovalRequest;
}

function call(params: object, nowMs: number, askedForTaint?: readonly string[]) {
  const envelope = { payload: { params }, control: {} } as unknown as ToolCallEnvelope;
  return { sessionKey: SESSION, tool: TOOL, envelope, nowMs, askedForTaint };
}

test('taking an approval back leaves a later one of the same thing', async () => {
  const { redis, standingApprovals } = await open();
  await standingApprovals.add(approved('first', { to: 'bob' }), 'grace', 1);
  // Written between the look of whoever takes the first one back, and their deed.
  vi.spyOn(redis, 'hgetall').mockImplementationOnce(async (key: unknown) => {
    const read = await redis.hgetall(key as string);
    await standingApprovals.add(approved('second', { to: 'bob' }), 'ada', 2);
    return read;
  });
  expect(await standingApprovals.remove(SESSION, 'first', 3)).toBeUndefined();
  expect(await standingApprovals.list(SESSION, 3)).toMatchObject([{ approvalId: 'second', by: 'ada' }]);
  expect(await standingApprovals.remove(SESSION, 'second', 3)).toMatchObject({ approvalId: 'second' });
  expect(await standingApprovals.list(SESSION, 3)).toEqual([]);
});

test('what has ended goes when something new is remembered', async () => {
  const { redis, standingApprovals, key } = await open();
  await standingApprovals.add(approved('first', { to: 'bob' }), 'grace', 0);
  await standingApprovals.add(approved('second', { to: 'eve' }), 'grace', 1_000);
  expect(await redis.hlen(key)).toBe(2);
  await standingApprovals.add(approved('third', { to: 'ada' }), 'grace', HOURS_12_MS);
  expect((await standingApprovals.list(SESSION, HOURS_12_MS)).map(({ approvalId }) => approvalId)).toEqual([
    'third',
    'second',
  ]);
  expect(await redis.hlen(key)).toBe(2);
  expect(await standingApprovals.find(call({ to: 'bob' }, HOURS_12_MS))).toBeUndefined();
});

test('one that knew of too little does not hide another one that knew of all', async () => {
  const { standingApprovals } = await open();
  const commandLike = (id: string, prefix: readonly string[], taint: readonly string[]) =>
    standingApprovals.add(
      { ...approved(id, {}, taint), amendment: { kind: 'command-prefix', prefix } } as never,
      'grace',
      1,
    );
  await commandLike('knew', ['git', 'push'], ['web']);
  await commandLike('knew-not', ['git', 'push', 'origin'], []);
  const params = { argv: ['git', 'push', 'origin', 'main'] };
  for (const [taint, by] of [
    [undefined, ['knew', 'knew-not']],
    [[], ['knew', 'knew-not']],
    [['web'], ['knew']],
  ] as const)
    expect(by).toContain((await standingApprovals.find(call(params, 2, taint)))?.approvalId);
  expect(await standingApprovals.find(call(params, 2, ['web', 'mail']))).toBeUndefined();
});
