import { describe, expect, test } from 'vitest';
import type { ServedTool } from '../../../src/producer/tools/served-tools.ts';
import type { PostedAnswer } from '../../../src/shared/connectors/client-tool.ts';
import type { DeclaredTool } from '../../../src/shared/connectors/declared-tool.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { FleetKeys } from '../../../src/shared/store/redis/keys.ts';
import { TIERS } from '../../../src/shared/tools/tool.ts';
import { contentOf, type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { echo } from '../../helpers/tools.ts';

const inputSchema = { type: 'object', properties: { file: { type: 'string' } }, required: ['file'] };

const openFile = (change: object = {}): DeclaredTool =>
  ({
    kind: 'dynamic',
    version: '1.0.0',
    description: 'Opens a file in the editor.',
    inputSchema,
    ...change,
  }) as DeclaredTool;

const servedTool = (change: Partial<ServedTool> = {}): ServedTool => ({
  name: 'open_file',
  version: '1.0.0',
  description: 'Opens a file in the editor.',
  inputSchema,
  run: ({ file }) => ({ output: { opened: file } }),
  ...change,
});

const LONG_MS = 600_000;

/** A fleet with the tool declared, and clients that the test plays itself. */
async function startDynamic(change: object = {}, workers = 1) {
  const settings = { lockDurationMs: 2_000, stalledIntervalMs: 250 };
  const fleet = await startFleet({ tools: [echo], tiers: TIERS, settings, workers });
  await fleet.pawl.registry.put('open_file', openFile(change));
  const join = async () => {
    const { clientId } = await fleet.pawl.toolClients.join(['open_file'], { leaseMs: LONG_MS });
    return {
      clientId,
      take: async (running: readonly string[] = [], waitMs = 20_000) =>
        (await fleet.pawl.toolClients.next(clientId, { running, waitMs })).call,
      answer: (callId: string, posted: PostedAnswer) => fleet.pawl.toolClients.answer(clientId, callId, posted),
      /** As if nothing had been heard of it for as long as its lease. */
      expire: () => expire(fleet, clientId),
    };
  };
  return { ...fleet, join };
}

async function expire({ pawl, settings }: Fleet, clientId: string): Promise<void> {
  const { clients } = new FleetKeys(settings.prefix);
  await pawl.backend.redis.zadd(`${clients}tool:tools.open_file`, 1, clientId);
  await pawl.backend.redis.del(`${clients}client:${clientId}`);
}

describe('a tool that an outside client runs (C21)', () => {
  test('is declared, called, reports progress and is called no more, all from one process', async () => {
    const { pawl, session, audited } = await startFleet({ tools: [echo], tiers: TIERS });
    const reported: unknown[] = [];
    session.events.on('progress', ({ progress, message }) => reported.push([progress, message]));
    const serving = await pawl.serveTools([
      servedTool({
        run: async ({ file }, call) => {
          call.progress({ progress: 1, message: 'opening' });
          await eventually(() => reported.length > 0, { what: 'the report' });
          return { output: { opened: file, tool: call.tool, attempt: call.attempt }, display: `opened ${file}` };
        },
      }),
    ]);
    const result = await session.call('open_file', { file: 'a.ts' }, { turnId: 'turn-1' });
    expect(contentOf(result)).toEqual({ opened: 'a.ts', tool: 'tools.open_file', attempt: 1 });
    expect(result.output?.metadata).toMatchObject({ display: 'opened a.ts', tainted: true });
    expect(reported).toEqual([[1, 'opening']]);
    expect((await session.call('open_file', { name: 'a.ts' })).error?.code).toBe('INVALID_PARAMS');
    await serving.close();
    expect((await session.call('open_file', { file: 'a.ts' }, { idempotencyKey: 'late' })).error).toMatchObject({
      code: 'CLIENT_GONE',
      retriable: false,
    });
    const changes = audited.flatMap((event) => (event.type === 'registry-changed' ? [event.action] : []));
    expect(changes).toEqual(['declared', 'served', 'left']);
    // The same declaration again is no new revision.
    await (await pawl.serveTools([servedTool()])).close();
    expect(await pawl.registry.history('open_file')).toHaveLength(1);
  });

  test('is closed gracefully: what runs is finished, and nothing more is taken', async () => {
    const { pawl, session } = await startFleet({ tools: [echo], tiers: TIERS });
    const [begun, gate] = [signal(), signal()];
    const run = async () => {
      begun.fire();
      await gate.promise;
      return { output: 'finished' };
    };
    const serving = await pawl.serveTools([servedTool({ run })]);
    const { result } = pending(await session.submit('open_file', { file: 'a' }));
    await begun.promise;
    const closed = serving.close(60_000);
    gate.fire();
    await closed;
    expect(contentOf(await result)).toBe('finished');
    expect((await session.call('open_file', { file: 'b' })).error?.code).toBe('CLIENT_GONE');
  });

  test('is closed gracefully also when it is closed once more, or its client is, meanwhile', async () => {
    const { session, openProducer } = await startFleet({ tools: [echo], tiers: TIERS });
    const [begun, gate] = [signal(), signal()];
    const run = async () => {
      begun.fire();
      await gate.promise;
      return { output: 'finished' };
    };
    const client = await openProducer();
    const serving = await client.serveTools([servedTool({ run })]);
    const { result } = pending(await session.submit('open_file', { file: 'a' }));
    await begun.promise;
    const closed = Promise.all([serving.close(60_000), serving.close(), client.close()]);
    gate.fire();
    await closed;
    expect(contentOf(await result)).toBe('finished');
  });

  test('is what the client says it is: failures, soft failures, images, and nothing that is no result', async () => {
    const { pawl, session } = await startFleet({ tools: [echo], tiers: TIERS });
    const answers: (() => unknown)[] = [
      () => ({ output: 'no', success: false }),
      () => {
        throw Object.assign(new Error('there is no such file'), { code: 'ENOENT', status: 404 });
      },
      () => 'not a result',
    ];
    await pawl.serveTools([servedTool({ run: () => answers.shift()?.() as never })]);
    const call = (key: string) => session.call('open_file', { file: key }, { idempotencyKey: key });
    expect(await call('a')).toMatchObject({ status: 'success', output: { metadata: { success: false } } });
    expect((await call('b')).error).toMatchObject({ message: 'there is no such file' });
    expect((await call('c')).error?.code).toBe('RESULT_INVALID');
  });

  test('whose result cannot be sent at once is not run again, and its result is kept until it can', async () => {
    const { pawl, session } = await startFleet({ tools: [echo], tiers: TIERS });
    const { clientCalls } = pawl.backend;
    const answer = clientCalls.answer.bind(clientCalls);
    let isAway = true;
    const ran: unknown[] = [];
    clientCalls.answer = async (...args) => {
      // Redis is away until another call has come and gone.
      if (isAway && JSON.stringify(args[3]).includes('"a"')) throw new PawlError('BACKEND_UNAVAILABLE');
      return answer(...args);
    };
    const run = ({ file }: Readonly<Record<string, unknown>>) => {
      ran.push(file);
      return { output: { opened: file } };
    };
    const failed = signal<Error>();
    const onError = (error: Error) => {
      failed.fire(error);
      throw new Error('what a listener throws is its own');
    };
    const serving = await pawl.serveTools([servedTool({ run })], { onError });
    const first = pending(await session.submit('open_file', { file: 'a' }));
    await failed.promise;
    for (const file of ['b', 'c'])
      expect(contentOf(await session.call('open_file', { file }))).toEqual({ opened: file });
    isAway = false;
    expect(contentOf(await first.result)).toEqual({ opened: 'a' });
    expect(ran).toEqual(['a', 'b', 'c']);
    await serving.close();
  });

  test('that returns what JSON cannot say has failed at once', async () => {
    const { pawl, session } = await startFleet({ tools: [echo], tiers: TIERS });
    const serving = await pawl.serveTools([servedTool({ run: () => ({ output: 1n }) })]);
    const { error } = await session.call('open_file', { file: 'a' });
    expect(error).toMatchObject({ code: 'RESULT_INVALID', message: expect.stringContaining('it returned bigint') });
    await serving.close();
  });

  test('always counts as mutating: it is of no read-only tier, and never without effects', async () => {
    const { pawl } = await startFleet({ tools: [echo], tiers: TIERS, workers: 0 });
    for (const wrong of [{ tier: 'read-only' }, { effects: 'none' }])
      await expect(pawl.registry.put('open_file', openFile(wrong))).rejects.toMatchObject({ code: 'CONTRACT_INVALID' });
    expect((await pawl.registry.put('open_file', openFile())).record).toMatchObject({
      tier: 'system',
      effects: 'once',
    });
    await expect(pawl.toolClients.join(['echo'])).rejects.toMatchObject({ code: 'UNKNOWN_TOOL' });
    await expect(pawl.toolClients.join(['open_file'], { leaseMs: 5 })).rejects.toThrow('1000 to 600000');
  });

  test('holds no worker while others of its calls are with clients', async () => {
    const { pawl, session } = await startFleet({ tools: [echo], tiers: TIERS, concurrency: 2 });
    const gate = signal();
    const serving = await pawl.serveTools([
      servedTool({ concurrency: 1, tier: 'workspace', run: () => gate.promise.then(() => ({ output: 'done' })) }),
    ]);
    const calls = await Promise.all(
      ['a', 'b', 'c', 'd'].map((file) => session.submit('open_file', { file }, { idempotencyKey: file })),
    );
    await eventually(() => serving.running === 1, { what: 'the first call' });
    gate.fire();
    for (const call of calls) expect(contentOf(await pending(call).result)).toBe('done');
  });
});

describe('what is between a client and its worker', () => {
  test('a call whose delivery was lost is delivered again, and never to two', async () => {
    const { session, join } = await startDynamic();
    const [one, other] = [await join(), await join()];
    const { callId, result } = pending(await session.submit('open_file', { file: 'a' }, { turnId: 'turn-7' }));
    const taken = await one.take();
    expect(taken).toMatchObject({ callId, turnId: 'turn-7', tool: 'tools.open_file', arguments: { file: 'a' } });
    expect(await other.take([], 0)).toBeUndefined();
    expect(await one.take()).toEqual(taken);
    expect(await one.take([callId], 0)).toBeUndefined();
    const fence = taken?.fence ?? 0;
    await expect(other.answer(callId, { fence, output: 'theirs' })).rejects.toMatchObject({ code: 'LEASE_LOST' });
    await expect(one.answer(callId, { fence: fence + 1, output: 'old' })).rejects.toMatchObject({ code: 'LEASE_LOST' });
    await one.answer(callId, { fence, output: 'mine' });
    await one.answer(callId, { fence, output: 'mine, once more' });
    expect(contentOf(await result)).toBe('mine');
  });

  test('only the newest of a client’s requests is given calls', async () => {
    const { session, join } = await startDynamic();
    const client = await join();
    const older = client.take();
    const newer = client.take();
    await expect(older).rejects.toMatchObject({ code: 'LEASE_LOST' });
    const { callId } = pending(await session.submit('open_file', { file: 'a' }));
    expect((await newer)?.callId).toBe(callId);
  });

  test('a cancelled call: untouched if no client had it, else its client learns of it and its result is refused', async () => {
    const { pawl, session, join } = await startDynamic();
    const client = await join();
    const waiting = pending(await session.submit('open_file', { file: 'a' }));
    await eventually(async () => (await pawl.read(waiting.callId))?.phase === 'running', { what: 'the attempt' });
    expect(await session.cancel(waiting.callId)).toMatchObject({ settlement: 'cancelled' });
    const taken = pending(await session.submit('open_file', { file: 'b' }));
    const call = await client.take();
    expect(call?.callId).toBe(taken.callId);
    const told = pawl.toolClients.next(client.clientId, { running: [taken.callId], waitMs: 20_000 });
    expect(await session.cancel(taken.callId)).toMatchObject({ settlement: 'unsettled' });
    expect(await told).toMatchObject({ cancelled: [taken.callId] });
    await expect(client.answer(taken.callId, { fence: call?.fence ?? 0, output: 1 })).rejects.toThrow('not used');
  });

  test('a client that leaves: its calls end at once, by what their tool says of a second run', async () => {
    const once = await startDynamic();
    const client = await once.join();
    const doubtful = pending(await once.session.submit('open_file', { file: 'a' }));
    await client.take();
    await once.pawl.toolClients.leave(client.clientId);
    expect((await doubtful.result).error).toMatchObject({ code: 'OUTCOME_UNKNOWN' });
    await once.pawl.resolve(doubtful.callId, { as: 'succeeded', output: 'it was open' });
    expect(contentOf((await once.pawl.result(doubtful.callId)) as never)).toBe('it was open');
    await expect(client.take()).rejects.toMatchObject({ code: 'NOT_FOUND' });
  });

  test('a client whose lease ends: where a second run is harmless, the next client runs the call', async () => {
    const { session, join } = await startDynamic({ effects: 'idempotent' });
    const [one, other] = [await join(), await join()];
    const { callId, result } = pending(await session.submit('open_file', { file: 'a' }));
    const first = await one.take();
    await one.expire();
    const second = await other.take();
    expect(second).toMatchObject({ callId, attempt: 2, idempotencyKey: first?.idempotencyKey });
    expect(second?.fence).toBeGreaterThan(first?.fence ?? 0);
    await other.answer(callId, { fence: second?.fence ?? 0, output: 'the second one' });
    expect(await result).toMatchObject({
      output: { content: 'the second one' },
      retriedBy: [{ reasonCode: 'CLIENT_LOST' }],
    });
  });

  test('an answer that is too large, or too late, ends as it does for every tool', async () => {
    const { session, join } = await startDynamic({ maxResultBytes: 1_000 });
    const client = await join();
    const large = pending(await session.submit('open_file', { file: 'a' }));
    const call = await client.take();
    await client.answer(large.callId, { fence: call?.fence ?? 0, output: 'x'.repeat(2_000) });
    expect((await large.result).error?.code).toBe('RESULT_TOO_LARGE');
    const late = pending(await session.submit('open_file', { file: 'b' }, { timeoutMs: 3_000 }));
    await client.take();
    expect(await late.result).toMatchObject({ status: 'timeout' });
  });

  test('a record that was written without a key is no call and no answer', async () => {
    const { pawl, settings } = await startFleet({
      tools: [echo],
      workers: 0,
      settings: { signingKeys: [{ kid: 'a', key: 'a-key-of-this-fleet' }] },
    });
    await pawl.registry.put('open_file', openFile());
    const { clientId } = await pawl.toolClients.join(['open_file']);
    const { clients } = new FleetKeys(settings.prefix);
    const forged = `sig ${JSON.stringify({ callId: 's0.forged', fence: 1, tool: 'tools.open_file', arguments: {} })}`;
    await pawl.backend.redis.hset(`${clients}call:s0.forged`, { state: 'waiting', fence: '1', request: forged });
    await pawl.backend.redis.rpush(`${clients}waiting:tools.open_file`, 's0.forged');
    expect((await pawl.toolClients.next(clientId, { running: [], waitMs: 0 })).call).toBeUndefined();
    await pawl.backend.redis.hset(`${clients}call:s0.forged`, { state: 'answered', answer: 'sig {"kind":"result"}' });
    expect(await pawl.backend.clientCalls.read({ callId: 's0.forged', tool: 'tools.open_file' })).toEqual({
      state: 'lost',
    });
  });
});

test('a worker that is drained leaves the call to its client, and another worker brings the result (C21)', async () => {
  const { session, startWorker, join } = await startDynamic({}, 0);
  const worker = await startWorker();
  const client = await join();
  const { callId, result } = pending(await session.submit('open_file', { file: 'a' }));
  const call = await client.take();
  await startWorker();
  await worker.close(0);
  await client.answer(callId, { fence: call?.fence ?? 0, output: 'all the same' });
  expect(contentOf(await result)).toBe('all the same');
  expect(await client.take([], 0)).toBeUndefined();
});
