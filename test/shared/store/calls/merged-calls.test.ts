/** Calls that are merged into others: that nobody makes one call another, and how long it is remembered. */
import { describe, expect, test } from 'vitest';
import { type IdentityRules, identify } from '../../../../src/shared/calls/call-id.ts';
import { Signer } from '../../../../src/shared/signing/signature.ts';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import type { Claim } from '../../../../src/shared/store/calls/claim/claim.ts';
import { Ledger } from '../../../../src/shared/store/calls/ledger.ts';
import { pending, startFleet } from '../../../helpers/fleet.ts';
import { gated } from '../../../helpers/tools.ts';
import { type Books, claimOf, envelopeFor, openBooks, PLACE, SUCCESS, settle, started } from '../calls.ts';

const RETENTION_MS = 60_000;
const FORGED = { status: 'error', error: { code: 'SIGNATURE_INVALID' } };

async function signedBooks(): Promise<Books> {
  const books = await openBooks(RETENTION_MS);
  const signatures = new Signatures(new Signer([{ kid: 'k', key: 'a key that nobody else has' }]));
  return { ...books, ledger: new Ledger(books.redis, books.world.prefix, RETENTION_MS, signatures) };
}

/** A call without a key, named as the fleet names it. */
function derived(
  name: string,
  paramsDigest = 'same',
  { scope = 'session' as IdentityRules['scope'], sessionKey = 'session-1', toolName = 'note', tenantId = 'acme' } = {},
): Claim {
  const { payload, target, ...rest } = envelopeFor(name, sessionKey);
  const { idempotencyKey: _, ...keyless } = payload;
  const envelope = { ...rest, toolName, target: { ...target, tenantId }, payload: keyless };
  const identity = identify(envelope, paramsDigest, {
    ...PLACE,
    scope,
    derive: true,
    derivedReplay: 'same-request',
  });
  const { request } = claimOf(name);
  const { callId, mergeId = '' } = identity;
  const generation = String(Date.now());
  return claimOf(name, { callId, mergeId, paramsDigest, generation, request: { ...request, envelope } });
}

describe('who writes to Redis without a key makes no call another one (DESIGN, decision 11)', () => {
  const strangers: readonly [string, Claim][] = [
    ['other parameters', derived('b', 'others')],
    ['another tool', derived('b', 'same', { toolName: 'pay' })],
    ['another tenant', derived('b', 'same', { tenantId: 'evil' })],
    ['another session', derived('b', 'same', { sessionKey: 'session-2' })],
    ['a key', { ...claimOf('b'), generation: String(Date.now()) }],
  ];

  test.each(strangers)('by its record: a call with %s has not that one’s result', async (_what, other) => {
    const books = await signedBooks();
    const { redis, ledger } = books;
    const leader = derived('a');
    await ledger.claim(leader);
    await settle(books, leader, (await started(books, leader)).fence);
    const keys = ledger.keys(PLACE);
    await redis.hset(keys.record(leader.callId), 'paramsDigest', other.paramsDigest);
    await redis.hset(
      keys.record(other.callId),
      'sameAs',
      leader.callId,
      'sameRequest',
      JSON.stringify(other.request.envelope),
    );
    expect(await ledger.claim(other)).toMatchObject({ kind: 'ended', callId: other.callId, outcome: FORGED });
    expect(await ledger.read(other.callId)).toMatchObject({ callId: other.callId, state: 'failed', outcome: FORGED });
    // Nor by a copy of all that its record says.
    const copied = await redis.hgetall(keys.record(leader.callId));
    await redis.del(keys.record(other.callId));
    await redis.hset(keys.record(other.callId), { ...copied, callId: leader.callId });
    expect(await ledger.claim(other)).toMatchObject({ kind: 'ended', outcome: FORGED });
    expect(await ledger.read(other.callId)).toMatchObject({ outcome: FORGED });
  });

  test('by the slot in which calls merge: who comes next does not wait for that one', async () => {
    const { redis, ledger } = await signedBooks();
    const leader = derived('a');
    await ledger.claim(leader);
    const other = derived('b', 'others');
    await ledger.claim(derived('c', 'others'));
    const slot = (await redis.keys(`*${other.mergeId}`))[0] ?? '';
    await redis.set(slot, leader.callId);
    await redis.hset(ledger.keys(PLACE).record(leader.callId), 'paramsDigest', 'others');
    expect(await ledger.claim(other)).toMatchObject({ kind: 'ended', callId: other.callId, outcome: FORGED });
  });

  test.each(['session', 'global'] as const)('those that are the same are one call: scope %s', async (scope) => {
    const books = await signedBooks();
    const { ledger } = books;
    const leader = derived('a', 'same', { scope });
    const sessionKey = scope === 'global' ? 'session-2' : 'session-1';
    const follower = derived('b', 'same', { scope, sessionKey });
    await ledger.claim(leader);
    expect(await ledger.claim(follower)).toMatchObject({ kind: 'inflight', callId: leader.callId });
    await settle(books, leader, (await started(books, leader)).fence);
    expect(await ledger.claim(follower)).toMatchObject({ kind: 'ended', callId: leader.callId, outcome: SUCCESS });
    expect(await ledger.read(follower.callId)).toMatchObject({ callId: leader.callId, outcome: SUCCESS });
  });
});

test.each(['session', 'global'] as const)(
  'producers with keys merge calls of the scope %s, and find them again under either ID',
  async (scope) => {
    const gate = gated('gate', { tier: 'read-only', effects: 'none' });
    const signingKeys = [{ kid: 'k', key: 'a key that nobody else has' }];
    const fleet = await startFleet({ tools: [gate.tool], settings: { signingKeys, tools: { gate: { scope } } } });
    const { pawl, session } = fleet;
    const other = scope === 'global' ? await pawl.openSession({ actorId: 'bob' }) : session;
    const params = { path: 'a.txt' };
    const first = pending(await session.submit(gate.tool, params));
    await gate.arrived();
    const merged = pending(await other.submit(gate.tool, params, { toolCallId: 'call_7', turnId: 'turn-1' }));
    expect(merged.callId).toBe(first.callId);
    gate.open();
    expect((await merged.result).cache?.matchedOn).toBe('inflight');
    const again = await other.call(gate.tool, params, { toolCallId: 'call_7', turnId: 'turn-1' });
    expect(again).toMatchObject({ status: 'success', fromCache: true });
    expect(gate.contexts).toHaveLength(1);
  },
);

describe('how long it is remembered that a request was merged (R11, R16)', () => {
  test('longer than a call that may go on as long as others join it, and its result from then on', async () => {
    const { redis, ledger } = await openBooks(RETENTION_MS);
    const leader = derived('a');
    const follower = derived('b');
    await ledger.claim(leader);
    await ledger.claim(follower);
    const slotMs = await redis.pttl((await redis.keys(`*${leader.mergeId}`))[0] ?? '');
    const leftMs = await redis.pttl(ledger.keys(PLACE).record(follower.callId));
    expect(leftMs).toBeGreaterThanOrEqual(slotMs + RETENTION_MS / 2);
  });

  test('when it is asked for again, at least as long as the result is kept', async () => {
    const books = await openBooks(RETENTION_MS);
    const { redis, ledger } = books;
    const leader = derived('a');
    const follower = derived('b');
    await ledger.claim(leader);
    await ledger.claim(follower);
    await settle(books, leader, (await started(books, leader)).fence, SUCCESS, { ttlMs: 10 * RETENTION_MS });
    await ledger.claim(follower);
    const record = ledger.keys(PLACE).record(follower.callId);
    expect(await redis.pttl(record)).toBeGreaterThan(9 * RETENTION_MS);
    await redis.pexpire(record, 20 * RETENTION_MS);
    await ledger.claim(follower);
    expect(await redis.pttl(record)).toBeGreaterThan(10 * RETENTION_MS);
  });
});
