import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/index.ts';
import { callFor } from '../../../src/producer/http/routes/calls.ts';
import { RedisBlobs } from '../../../src/shared/store/blobs/redis-blobs.ts';
import { SegmentMover } from '../../../src/shared/store/segments/segment-mover.ts';
import { TIERS } from '../../../src/shared/tools/tool.ts';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { gated } from '../../helpers/tools.ts';

let runs = 0;
const note = defineTool({
  name: 'note',
  version: '1.0.0',
  description: 'Notes a text.',
  tier: 'workspace',
  input: z.object({ text: z.string(), times: z.number().default(1) }),
  run: ({ text, times }) => {
    runs += 1;
    return { output: { text: text.repeat(times), runs }, display: `noted ${text}` };
  },
});
const gate = gated('wait');
const SIGNING_KEYS = [{ kid: 'k1', key: 'a-key-of-these-tests' }];

async function startWithFiles() {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-segments-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const settings = { blobStore: `file:${folder}`, signingKeys: SIGNING_KEYS };
  const fleet = await startFleet({ tools: [note, gate.tool], settings });
  const { redis, ledger } = fleet.pawl.backend;
  const { blobs, segments } = ledger.access;
  const mover = new SegmentMover({ redis, blobs, segments, afterMs: 0 });
  const move = async () => {
    let moved = 0;
    for (const tier of TIERS) moved += (await mover.run(ledger.keys({ tier, shard: 0 }), Date.now())).calls;
    return moved;
  };
  return { ...fleet, folder, move };
}

test('a moved call is replayed byte for byte, shown, listed, streamed and flushed as any other', async () => {
  const { session, pawl, move, openProducer } = await startWithFiles();
  const first = await session.call(note, { text: 'é"\n' }, { idempotencyKey: 'a' });
  const large = await session.call(note, { text: 'ß', times: 100_000 }, { idempotencyKey: 'large' });
  const [before, ran] = [await pawl.calls.read(first.callId ?? ''), runs];
  expect(await move()).toBe(2);
  // A producer that knows nothing of the calls.
  const other = await openProducer();
  const theirs = await other.session(session.key);
  const again = await theirs.call(note, { text: 'é"\n' }, { idempotencyKey: 'a' });
  expect(again).toMatchObject({ status: 'success', fromCache: true, callId: first.callId });
  expect(JSON.stringify(again.output)).toBe(JSON.stringify(first.output));
  expect(JSON.stringify((await pawl.calls.read(first.callId ?? ''))?.outcome)).toBe(JSON.stringify(before?.outcome));
  const parts: Buffer[] = [];
  for await (const part of await pawl.outputStream(large.callId ?? '')) parts.push(part as Buffer);
  expect(JSON.parse(Buffer.concat(parts).toString())).toEqual(large.output?.content);
  expect(await theirs.call(note, { text: 'other' }, { idempotencyKey: 'a' })).toMatchObject({
    error: { code: 'IDEMPOTENCY_CONFLICT' },
  });
  expect((await pawl.calls.list({ sessionKey: session.key, state: 'done' })).map(({ callId }) => callId)).toEqual([
    large.callId,
    first.callId,
  ]);
  expect(await pawl.calls.cancel(first.callId ?? '')).toMatchObject({ settlement: 'too-late' });
  expect(runs).toBe(ran);
  expect(await pawl.calls.flush({ sessionKey: session.key })).toMatchObject({ flushed: 2 });
  expect((await session.call(note, { text: 'é"\n' }, { idempotencyKey: 'a' })).fromCache).toBe(false);
});

test('calls of a lost segment answer RESULT_LOST over every way, are left out of lists, and never run', async () => {
  const { session, pawl, move, folder, openProducer } = await startWithFiles();
  const { callId = '' } = await session.call(note, { text: 'a' }, { idempotencyKey: 'a' });
  const ran = runs;
  await move();
  for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true });
  const other = await openProducer();
  const theirs = await other.session(session.key);
  expect(await theirs.call(note, { text: 'a' }, { idempotencyKey: 'a' })).toMatchObject({
    status: 'error',
    callId,
    error: { code: 'RESULT_LOST' },
  });
  await expect(other.calls.read(callId)).rejects.toMatchObject({ code: 'RESULT_LOST' });
  // Its tenant is not known any more: those of one tenant learn nothing of it.
  await expect(callFor(other, { role: 'operator', id: 'ops' }, callId)).rejects.toMatchObject({ code: 'RESULT_LOST' });
  const ofTenant = { role: 'operator', id: 'ops', tenantId: 'blue' } as const;
  await expect(callFor(other, ofTenant, callId)).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  expect(await pawl.calls.list()).toEqual([]);
  const kept = await session.call(note, { text: 'b' }, { idempotencyKey: 'b' });
  expect((await other.calls.list()).map((record) => record.callId)).toEqual([kept.callId]);
  expect(runs).toBe(ran + 1);
});

test('a session is closed, and its running call cancelled, while the store with its other calls cannot be read', async () => {
  const { session, pawl, move } = await startWithFiles();
  await session.call(note, { text: 'a' });
  expect(await move()).toBe(1);
  const { result } = pending(await session.submit(gate.tool, {}));
  await gate.arrived();
  const { blobs } = pawl.backend.ledger.access;
  blobs.keepIn(new RedisBlobs(pawl.backend.redis));
  await session.close();
  expect(await result).toMatchObject({ error: { code: 'CANCELLED' } });
});
