import { ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../../src/shared/tools/define-tool.ts';
import { PART_BYTES } from '../../../../src/shared/util/json/large-json.ts';
import { openEvents } from '../event-stream.ts';
import { type Rig, startRig } from '../rig.ts';

const LINES = Array.from({ length: 40_000 }, (_, index) => ({ index, text: `Line ${index}: “quoted”, é, 🙂` }));

const lines = defineTool({
  name: 'lines',
  version: '1.0.0',
  description: 'Returns many lines, or a few.',
  tier: 'read-only',
  input: z.strictObject({ count: z.number().int().default(LINES.length) }),
  maxOutputBytes: 2_000_000,
  run: ({ count }) => ({ output: LINES.slice(0, count), display: `${count} lines` }),
});

/** Every stream's sign of life comes behind each piece that is written, and behind the end. Answers what was written too late. */
function signsAtTheWorstMoments(): readonly string[] {
  onTestFinished(() => void vi.restoreAllMocks());
  const signs: (() => void)[] = [];
  const late: string[] = [];
  const { setInterval } = globalThis;
  vi.spyOn(globalThis, 'setInterval').mockImplementation(((run: () => void, everyMs: number) => {
    if (everyMs === 15_000) signs.push(run);
    return setInterval(run, everyMs);
  }) as never);
  const { write, end } = ServerResponse.prototype;
  vi.spyOn(ServerResponse.prototype, 'write').mockImplementation(function (this: ServerResponse, ...[piece]: [string]) {
    if (this.writableEnded) late.push(piece);
    const answer = !this.writableEnded && write.call(this, piece, 'utf8');
    if (!piece.startsWith(':')) for (const sign of signs) sign();
    return answer;
  } as never);
  vi.spyOn(ServerResponse.prototype, 'end').mockImplementation(function (this: ServerResponse, ...parts: never) {
    end.apply(this, parts);
    for (const sign of signs) sign();
    return this;
  } as never);
  return late;
}

async function calledRig(count?: number) {
  const rig = await startRig({ tools: [lines] });
  const params = count === undefined ? {} : { count };
  const answer = await rig.call({ tool: 'lines', params, session: 's', idempotencyKey: 'k' });
  return { ...rig, answer, path: `/v1/calls/${answer.body.callId}` };
}

async function storedParts({ world, pawl }: Rig) {
  const [key = ''] = (await world.keys()).filter((name) => name.includes(':outcome:'));
  const { redis } = pawl.backend;
  return { key, redis, count: await redis.hlen(key) };
}

describe('large results over HTTP', () => {
  test('the whole output comes part by part, alike over HTTP and as a stream, and small ones as well', async () => {
    for (const count of [LINES.length, 3]) {
      const { ask, pawl, server, answer, path } = await calledRig(count);
      const wanted = JSON.stringify({ content: LINES.slice(0, count) });
      const whole = await ask(`${path}/output`);
      expect(whole.status).toBe(200);
      expect(whole.headers.get('content-type')).toMatch(/^application\/json/);
      expect(whole.text === wanted).toBe(true);
      const streamed = await text(await pawl.outputStream(answer.body.callId));
      expect(`{"content":${streamed}}` === wanted).toBe(true);
      const head = await fetch(`${server.url}${path}/output`, { method: 'HEAD' });
      expect([head.status, await head.text()]).toEqual([200, '']);
    }
  });

  test('a result that shows less than its output is still long, and written whole', async () => {
    const { ask, answer, path } = await calledRig();
    const { bytes } = answer.body.output.metadata.whole;
    expect(bytes).toBe(Buffer.byteLength(JSON.stringify(LINES)));
    expect(answer.text.length).toBeGreaterThan(1_700_000);
    expect(answer.body.output.content.slice(0, -1)).toEqual(LINES.slice(0, answer.body.output.content.length - 1));
    expect((await ask(path)).body.result.output).toEqual(answer.body.output);
  });

  test('a follower of the call gets its large result, and is not disconnected for its size', async () => {
    const { server, answer, path } = await calledRig();
    const stream = await openEvents(`${server.url}${path}/events`);
    const settled = await stream.until('settled');
    await stream.ended;
    expect(settled.data.result.output).toEqual(answer.body.output);
  });

  test('a keep-alive comment is written neither into an event nor after the end', async () => {
    const { server, answer, path } = await calledRig();
    const late = signsAtTheWorstMoments();
    const stream = await openEvents(`${server.url}${path}/events`);
    await stream.ended;
    const settled = stream.events.find(({ type }) => type === 'settled');
    expect(settled?.data.result.output).toEqual(answer.body.output);
    expect(late).toEqual([]);
  });

  test('a part that was changed or lost is refused before anything is sent, and breaks an answer that has begun', async () => {
    const rig = await calledRig();
    const { ask, path } = rig;
    const { key, redis, count } = await storedParts(rig);
    expect(count).toBeGreaterThan(3);
    const last = String(count - 1);
    await redis.hset(key, last, 'not what was written');
    await expect(ask(`${path}/output`)).rejects.toThrow();
    await redis.hdel(key, last);
    await expect(ask(`${path}/output`)).rejects.toThrow();
    await redis.hset(key, '0', 'x'.repeat(PART_BYTES));
    const refused = { status: 502, body: { error: { code: 'SIGNATURE_INVALID' } } };
    expect(await ask(`${path}/output`)).toMatchObject(refused);
    await redis.hdel(key, '0');
    expect(await ask(`${path}/output`)).toMatchObject({ status: 404, body: { error: { code: 'UNKNOWN_CALL' } } });
  });

  test('a call without an output has none', async () => {
    const { ask, call, pawl } = await startRig({ tools: [lines] });
    const failed = await call({ tool: 'lines', params: { count: 'many' }, session: 's' });
    expect(failed.body.error.code).toBe('INVALID_PARAMS');
    expect(await ask(`/v1/calls/r0.${'x'.repeat(22)}/output`)).toMatchObject({ status: 404 });
    await expect(pawl.outputStream(`r0.${'x'.repeat(22)}`)).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  });
});
