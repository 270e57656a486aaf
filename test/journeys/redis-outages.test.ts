import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { connect, type Session } from '../../src/index.ts';
import { type Server, startServer } from '../chaos/server.ts';
import { startScript } from '../helpers/process.ts';
import { atOnce, eventually, within } from '../helpers/signal.ts';
import { type EffectLine, readEffects } from './fixtures/effect-log.ts';

/** The time limit of a call that is made meanwhile; and what a busy machine may add to it. */
const LIMIT_MS = 800;
const LATE_MS = 6_000;
/** What a producer takes at most to say that Redis does not answer, when the call sets no limit of its own. */
const PRODUCER_LIMIT_MS = 15_000;

interface Outpost {
  readonly server: Server;
  readonly session: Session;
  readonly folder: string;
  effects(callId?: string): readonly EffectLine[];
}

/** A server of the test's own, one worker process on it, and a producer in this process. */
async function startOutpost(): Promise<Outpost> {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-outage-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  // What it acknowledged is in its file when it is killed: with everysec it holds back what it writes while the disk is busy.
  const server = await startServer(join(folder, 'redis'), ['--appendfsync', 'always']);
  onTestFinished(() => server[Symbol.asyncDispose]());
  const effectLog = join(folder, 'effects.jsonl');
  const env = {
    REDIS_URL: server.url,
    PAWL_LOCK_DURATION_MS: '2000',
    PAWL_STALLED_INTERVAL_MS: '500',
    EFFECT_LOG: effectLog,
    LOG_LEVEL: 'silent',
  };
  const worker = startScript(new URL('./fixtures/worker.ts', import.meta.url), [], { env });
  await worker.line(/^ready/);
  const pawl = await connect({ redisUrl: server.url, logLevel: 'silent' });
  onTestFinished(() => pawl.close());
  const session = await pawl.openSession({ workspaceRoot: folder });
  return {
    server,
    session,
    folder,
    effects: (callId) => readEffects(effectLog).filter((line) => callId === undefined || line.callId === callId),
  };
}

interface Fault {
  readonly begin: (server: Server) => Promise<unknown> | unknown;
  readonly heal: (server: Server) => Promise<unknown> | unknown;
}

const FAULTS: Readonly<Record<string, Fault>> = {
  'is out of memory': {
    begin: ({ admin }) => admin.config('SET', 'maxmemory', '1'),
    heal: ({ admin }) => admin.config('SET', 'maxmemory', '0'),
  },
  'has become a read-only replica': {
    begin: ({ admin }) => admin.replicaof('127.0.0.1', 1),
    heal: ({ admin }) => admin.replicaof('NO', 'ONE'),
  },
  'has lost its replicas': {
    begin: ({ admin }) => admin.config('SET', 'min-replicas-to-write', '1'),
    heal: ({ admin }) => admin.config('SET', 'min-replicas-to-write', '0'),
  },
  'does not let us write': {
    begin: ({ admin }) => admin.call('ACL', 'SETUSER', 'default', '-@write'),
    heal: ({ admin }) => admin.call('ACL', 'SETUSER', 'default', '+@all'),
  },
  'runs a script of somebody’s that does not end': {
    begin: async ({ admin }) => {
      await admin.config('SET', 'busy-reply-threshold', '50');
      const somebody = admin.duplicate();
      const ended = somebody.eval('while true do end', 0).catch(() => {});
      void ended.then(() => somebody.disconnect());
      await eventually(() =>
        admin.ping().then(
          () => false,
          (error: Error) => error.message.startsWith('BUSY'),
        ),
      );
    },
    heal: ({ admin }) => admin.script('KILL'),
  },
  'was killed': { begin: (server) => server.kill(), heal: (server) => server.start() },
  'stands still': { begin: (server) => server.signal('SIGSTOP'), heal: (server) => server.signal('SIGCONT') },
};

test(`while Redis ${Object.keys(FAULTS).join(', ')}: producers say so in time; afterwards all goes on, and nothing ran twice`, () =>
  atOnce(FAULTS, async ({ begin, heal }) => {
    const { server, session, folder, effects } = await startOutpost();
    const gate = join(folder, 'gate');
    const running = session.call('record_once', { gate }, { idempotencyKey: 'running' });
    await eventually(() => effects().length === 1);
    await begin(server);
    const askedAtMs = performance.now();
    const refused = session.call('record_once', {}, { idempotencyKey: 'meanwhile', timeoutMs: LIMIT_MS });
    await expect(refused).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    expect(performance.now() - askedAtMs).toBeLessThan(LIMIT_MS + LATE_MS);
    // The tool finishes while its outcome cannot be written.
    writeFileSync(gate, '');
    await heal(server);
    // Whoever stood still past the lease may not say that it succeeded: then the outcome is unknown, and nothing ran again.
    const ended = await within(running, 30_000, 'the end of the call that ran');
    expect([ended.status, ended.error?.code]).toBeOneOf([
      ['success', undefined],
      ['error', 'OUTCOME_UNKNOWN'],
    ]);
    const again = await eventually(() => session.call('record_once', {}, { idempotencyKey: 'meanwhile' }));
    // Redis had heard of the call before it stood still: then it is that call, whose time limit has passed.
    expect([again.status, again.error?.code]).toBeOneOf([
      ['success', undefined],
      ['timeout', 'DEADLINE_EXCEEDED'],
    ]);
    expect(await session.call('record_once', {}, { idempotencyKey: 'after' })).toMatchObject({ status: 'success' });
    for (const key of ['running', 'meanwhile'])
      expect(effects().filter((line) => line.key === key && line.phase === 'effect').length).toBeLessThanOrEqual(1);
  }));

const LOAD = 120;
const LATE = 8;
const OUTAGE_MS = 2_500;

test('Redis is away under load: every call ends, asked for again where it was refused, and none has a second effect', {
  tags: ['slow'],
}, async () => {
  const { server, session, effects } = await startOutpost();
  const refusals: { readonly code: unknown; readonly tookMs: number }[] = [];
  const endMs = performance.now() + 25_000;
  const persist = async (key: string) => {
    for (;;) {
      const askedAtMs = performance.now();
      try {
        return await session.call('record_once', { beforeMs: 20 }, { idempotencyKey: key });
      } catch (error) {
        refusals.push({ code: (error as { code?: unknown }).code, tookMs: performance.now() - askedAtMs });
        if (performance.now() > endMs) throw error;
        await pause(50);
      }
    }
  };
  const keys = Array.from({ length: LOAD }, (_, number) => `key-${number}`);
  const lanes = Array.from({ length: 12 }, async () => {
    const results = [];
    for (let key = keys.shift(); key !== undefined; key = keys.shift()) results.push(await persist(key));
    return results;
  });
  await eventually(() => effects().length > 20);
  await server.kill();
  // Those that were taken wait; these are refused until Redis is back.
  const late = Array.from({ length: LATE }, (_, number) => persist(`late-${number}`));
  await pause(OUTAGE_MS);
  await server.start();
  const results = (await Promise.all([...lanes, Promise.all(late)])).flat();
  expect(results).toHaveLength(LOAD + LATE);
  for (const { status, error } of results)
    expect([status, error?.code]).toBeOneOf([
      ['success', undefined],
      ['error', 'OUTCOME_UNKNOWN'],
    ]);
  const happened = effects().filter(({ phase }) => phase === 'effect');
  expect(new Set(happened.map(({ key }) => key)).size).toBe(happened.length);
  expect(refusals.length).toBeGreaterThan(0);
  expect([...new Set(refusals.map(({ code }) => code))]).toEqual(['BACKEND_UNAVAILABLE']);
  expect(Math.max(...refusals.map(({ tookMs }) => tookMs))).toBeLessThan(PRODUCER_LIMIT_MS);
});
