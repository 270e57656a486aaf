import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { TestProcess } from '../../helpers/process.ts';
import { eventually } from '../../helpers/signal.ts';
import { type CliFixture, openPlace } from '../pawl.ts';

let place: CliFixture;
let worker: TestProcess;
beforeAll(async () => {
  place = await openPlace();
  worker = await place.worker();
});
afterAll(async () => {
  await worker[Symbol.asyncDispose]();
  await place[Symbol.asyncDispose]();
});

const OPENING = [
  {
    id: 1,
    method: 'initialize',
    params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'pipe', version: '1' } },
  },
  { method: 'notifications/initialized' },
];
const call = (id: number, name: string, args: object) => ({
  id,
  method: 'tools/call',
  params: { name, arguments: args },
});
const lines = (messages: readonly object[]) =>
  messages.map((message) => `${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`).join('');

describe('pawl mcp --tools', () => {
  test('puts the hooks of its files around the calls that come in', async () => {
    const file = join(place.folder, 'guard.ts');
    writeFileSync(
      file,
      `import { defineHook } from 'pawl';
export default defineHook({ name: 'guard', beforeCall: () => ({ deny: 'not today' }) });
`,
    );
    const pawl = place.start(['mcp', '--workers', '1', '--tools', file]);
    pawl.say(lines([...OPENING, call(2, 'greet', { name: 'Ada' })]));
    expect(await pawl.line('"id":2')).toContain('not today');
    pawl.endInput();
    expect(await pawl.ended).toEqual({ code: 0, signal: null });
  });

  test('starts its workers where the port of PAWL_METRICS_PORT is another process’', async () => {
    const other = createServer();
    await new Promise<void>((listening) => other.listen(0, '127.0.0.1', listening));
    onTestFinished(() => new Promise<void>((closed) => void other.close(() => closed())));
    const { port } = other.address() as AddressInfo;
    const pawl = place.start(['mcp', '--workers', '2'], { PAWL_METRICS_PORT: String(port) });
    pawl.say(lines([...OPENING, call(2, 'greet', { name: 'Ada' })]));
    expect(await pawl.line('"id":2')).toContain('Hello, Ada!');
    pawl.endInput();
    expect(await pawl.ended).toEqual({ code: 0, signal: null });
  });

  test('without workers of its own is refused: no worker would run them', async () => {
    const refused = await place.run(['mcp', '--tools', 'tools.ts']);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('--tools needs --workers') });
  });
});

describe('pawl mcp', () => {
  test('answers a client that writes null for absent members, and refuses what would be lost', async () => {
    const [initialize, initialized] = OPENING;
    const params = { ...initialize?.params, capabilities: { roots: null }, _meta: null };
    const pawl = place.start(['mcp']);
    pawl.say(
      `\n${lines([
        { ...initialize, params },
        { ...initialized, id: null, params: null },
      ])}`,
    );
    expect(await pawl.line('"id":1')).toContain('"serverInfo"');
    pawl.say(lines([{ id: 2, method: 'tools/call', params: { name: 'greet', arguments: null } }]));
    expect(await pawl.line('"id":2')).toContain('INVALID_PARAMS');
    const long = lines([call(3, 'greet', { name: 1 })]).replace('"name":1', '"name":9007199254740993');
    pawl.say(long);
    expect(await pawl.line('"code":-32700')).toContain('which a number of 64 bits cannot hold');
    pawl.endInput();
    expect(await pawl.ended).toEqual({ code: 0, signal: null });
  });
});

describe('pawl mcp, at the end of its input', () => {
  test('answers the pending requests, and ends', async () => {
    const go = join(place.folder, 'go');
    const asked = [{ id: 2, method: 'tools/list' }, call(3, 'greet', { name: 'Ada' }), call(4, 'nothing', {})];
    const pawl = place.start(['mcp']);
    pawl.say(lines([...OPENING, ...asked, call(5, 'linger', { ms: 60_000, until: go })]));
    pawl.endInput();
    await pawl.line('"id":3');
    writeFileSync(go, '');
    expect(await pawl.ended).toEqual({ code: 0, signal: null });
    const answers = pawl
      .stdout()
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as { id?: number; result?: object; error?: object });
    expect(answers.flatMap(({ id }) => id ?? []).sort()).toEqual([1, 2, 3, 4, 5]);
    expect(answers.find(({ id }) => id === 3)?.result).toMatchObject({ structuredContent: { text: 'Hello, Ada!' } });
    expect(answers.find(({ id }) => id === 5)?.result).toMatchObject({ structuredContent: { lingeredMs: 60_000 } });
  });

  test.each(['', ' ', '\r'])('answers a last message that ends in %j instead of a line break', async (end) => {
    const pawl = place.start(['mcp']);
    pawl.endInput(lines([...OPENING, call(2, 'greet', { name: 'Ada' })]).slice(0, -1) + end);
    expect(await pawl.ended).toEqual({ code: 0, signal: null });
    expect(pawl.stdout()).toContain('Hello, Ada!');
  });

  test('refuses a last message that breaks off, and ends', async () => {
    const pawl = place.start(['mcp']);
    pawl.endInput(lines([...OPENING, call(2, 'greet', { name: 'Ada' })]).slice(0, -10));
    expect(await pawl.ended).toEqual({ code: 0, signal: null });
    expect(pawl.stdout()).toContain('"code":-32700');
  });

  test('waits for answers only as long as a worker would, and not for a call that was cancelled', async () => {
    const late = place.start(['mcp'], { PAWL_DRAIN_MS: '1' });
    late.say(lines([...OPENING, call(2, 'linger', { ms: 60_000 })]));
    const cancelled = place.start(['mcp'], { PAWL_DRAIN_MS: '600000' });
    const cancel = { method: 'notifications/cancelled', params: { requestId: 2 } };
    cancelled.say(lines([...OPENING, call(2, 'linger', { ms: 60_000 }), cancel]));
    for (const pawl of [late, cancelled]) {
      pawl.endInput();
      expect(await pawl.ended).toEqual({ code: 0, signal: null });
      expect(pawl.stdout()).not.toContain('"id":2');
    }
  });
});

test.each(['SIGTERM', 'SIGHUP'] as const)(
  'pawl mcp that ends by %s cancels what its client asked for',
  async (name) => {
    const pawl = place.start(['mcp', '--session', name]);
    pawl.say(lines([...OPENING, call(2, 'linger', { ms: 60_000, until: join(place.folder, `never after ${name}`) })]));
    const isCall = async (phase: string) => {
      const { stdout } = await place.run(['calls', 'ls', '--json']);
      const { calls } = JSON.parse(stdout) as { calls: { session: string; phase: string }[] };
      return calls.find(({ session }) => session === name)?.phase === phase;
    };
    await eventually(() => isCall('running'));
    pawl.signal(name);
    expect(await pawl.ended).toEqual({ code: 0, signal: null });
    await eventually(() => isCall('cancelled'));
  },
);
