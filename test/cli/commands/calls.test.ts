import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TestProcess } from '../../helpers/process.ts';
import { startWire } from '../../helpers/proxy.ts';
import { type CliFixture, openPlace, runningCall } from '../pawl.ts';

let place: CliFixture;
let worker: TestProcess;

beforeAll(async () => {
  place = await openPlace();
  worker = await place.worker();
});

afterAll(async () => {
  worker.signal('SIGTERM');
  await worker.ended;
  expect(await place.world.connections()).toEqual([]);
  await place[Symbol.asyncDispose]();
});

/** Keys, so that tests do not meet each other's calls. */
let used = 0;
const fresh = () => {
  used += 1;
  return `key-${used}`;
};

describe('pawl calls, tools and sessions', () => {
  test('calls watch outlives a Redis that is away for a while', { tags: 'slow' }, async () => {
    await using wire = await startWire(place.world.redisUrl);
    const watch = place.start(['calls', 'watch', '--session', 'patient'], { REDIS_URL: wire.url });
    await watch.line('watching');
    wire.cut();
    await watch.line('trying again');
    wire.heal();
    await watch.line('Redis answers again');
    await place.run(['call', 'greet', '--params', '{"name":"Ada"}', '--session', 'patient']);
    await watch.line('greet done');
    watch.signal('SIGINT');
    expect(await watch.ended).toEqual({ code: 0, signal: null });
  });

  test('calls watch follows calls as lines in a pipe', async () => {
    const watch = place.start(['calls', 'watch', '--session', 'watched', '--json']);
    const plain = place.start(['calls', 'watch', '--session', 'watched']);
    await plain.line('watching');
    await place.run(['call', 'greet', '--params', '{"name":"Ada"}', '--session', 'watched']);
    expect(JSON.parse(await watch.line('"state":"done"'))).toMatchObject({ tool: 'greet', session: 'watched' });
    expect(await plain.line('greet done')).toMatch(/^\d{4}-\S+Z r0\.\S+ greet done \(1 attempt\) watched$/);
    for (const process of [watch, plain]) process.signal('SIGINT');
    expect(await Promise.all([watch.ended, plain.ended])).toEqual([
      { code: 0, signal: null },
      { code: 0, signal: null },
    ]);
  });

  test('a call can be cancelled from elsewhere, once', async () => {
    const call = place.start(['call', 'linger', '--params', '{"ms":60000}', '--key', fresh(), '--session', 'other']);
    const callId = await runningCall(worker, 'other');
    const listed = await place.run(['calls', 'ls', '--session', 'other']);
    expect(listed.stdout).toMatch(/linger +running +1 /);
    expect((await place.run(['calls', 'show', callId])).stdout).toMatch(/state +running for /);
    const cancelled = await place.run(['calls', 'cancel', callId, '--json']);
    expect({ code: cancelled.code, ...(JSON.parse(cancelled.stdout) as object) }).toMatchObject({
      code: 6,
      settlement: 'unsettled',
    });
    expect((await call.ended).code).toBe(1);
    expect((await place.run(['calls', 'cancel', callId])).code).toBe(1);
  });

  test('show, cancel and resolve refuse an unknown or unsuitable call', async () => {
    const [unknown, resolvable] = await Promise.all([
      place.run(['calls', 'show', 'r0.nothing']),
      place.run(['call', 'greet', '--params', '{"name":"Eve"}', '--json']),
    ]);
    expect(unknown).toMatchObject({ code: 2, stderr: expect.stringContaining('There is no call r0.nothing') });
    const { callId } = JSON.parse(resolvable.stdout) as { callId: string };
    const refused = await place.run(['calls', 'resolve', callId, '--as', 'failed']);
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('Only a call in doubt can be resolved') });
    expect((await place.run(['calls', 'resolve', callId, '--as', 'perhaps'])).code).toBe(2);
  });

  test('tools are listed and described with their schema', async () => {
    const [listed, shown, mistyped] = await Promise.all([
      place.run(['tools', '--json']),
      place.run(['tools', 'show', 'greet', '--json']),
      place.run(['tools', 'show', 'gret']),
    ]);
    const list = JSON.parse(listed.stdout) as { tools: { name: string }[] };
    expect(list.tools.map(({ name }) => name)).toEqual(
      expect.arrayContaining(['greet', 'plain', 'linger', 'break', 'read']),
    );
    expect(JSON.parse(shown.stdout)).toMatchObject({ name: 'greet', workers: 1, inputSchema: { required: ['name'] } });
    expect(mistyped).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('greet'),
    });
  });

  test('a tool that was switched off is listed and described as off', async () => {
    const enabledOf = async () => {
      const { tools } = JSON.parse((await place.run(['tools', '--json'])).stdout) as {
        tools: { name: string; enabled: boolean }[];
      };
      return tools.find(({ name }) => name === 'plain')?.enabled;
    };
    expect(await enabledOf()).toBe(true);
    expect((await place.run(['tools', 'disable', 'plain'])).code).toBe(0);
    expect(await enabledOf()).toBe(false);
    expect((await place.run(['tools'])).stdout).toMatch(/^plain .* off +1 /m);
    expect((await place.run(['tools', 'show', 'plain'])).stdout).toContain(`until 'pawl tools enable plain'`);
    expect((await place.run(['tools', 'enable', 'plain'])).code).toBe(0);
    expect((await place.run(['tools', 'show', 'plain'])).stdout).not.toContain('switch');
  });

  test('calls are listed by tool and state, and a state that there is not is refused', async () => {
    const session = ['--session', 'by-state'];
    await place.run(['call', 'greet', '--params', '{"name":"Ada"}', ...session]);
    await place.run(['call', 'break', ...session]);
    const listed = async (...args: string[]) => {
      const { stdout } = await place.run(['calls', 'ls', '--json', ...session, ...args]);
      return (JSON.parse(stdout) as { calls: { tool: string }[] }).calls.map(({ tool }) => tool);
    };
    expect(await listed()).toEqual(['break', 'greet']);
    expect(await listed('--state', 'failed')).toEqual(['break']);
    expect(await listed('--tool', 'gree')).toEqual(['greet']);
    expect(await listed('--tool', 'greet', '--state', 'running')).toEqual([]);
    expect(await place.run(['calls', 'ls', '--state', 'lost'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('unresolved'),
    });
  });

  test('a session is opened, shown and closed; a closed one takes no calls', async () => {
    const opened = await place.run(['sessions', 'open', '--actor', 'ada', '--workspace', '.', '--key', 'trip']);
    expect(opened).toMatchObject({ code: 0, stdout: 'trip\n' });
    const shown = await place.run(['sessions', 'show', 'trip', '--json']);
    expect(JSON.parse(shown.stdout)).toMatchObject({ actorId: 'ada', workspaceRoot: place.folder, state: 'open' });
    const hostile = '\u001b[2J\u001b]0;all is well\u0007';
    await place.run(['sessions', 'open', '--actor', hostile, '--agent', hostile, '--key', 'hostile']);
    const described = await place.run(['sessions', 'show', 'hostile']);
    expect(described.stdout).toMatch(/^actor +\\u\{1B\}\[2J\\u\{1B\}\]0;all is well\\u\{7\}$/m);
    expect(described.stdout).not.toMatch(/[\u001b\u0007]/);
    expect(await place.run(['sessions', 'state', 'trip', 'planning'])).toMatchObject({
      code: 0,
      stdout: 'trip is planning\n',
    });
    expect((await place.run(['sessions', 'state', 'trip', 'closed'])).code).toBe(2);
    const unknown = await place.run(['sessions', 'show', 'nobody']);
    expect(unknown).toMatchObject({ code: 2, stderr: expect.stringContaining("'pawl sessions open --key NAME'") });
    const about = ['--agent', 'planner', '--agent-name', 'The planner', '--model', 'm-1', '--state', 'acting'];
    const { stdout } = await place.run(['sessions', 'open', '--key', 'described', '--json', ...about]);
    expect(JSON.parse(stdout)).toMatchObject({
      agentId: 'planner',
      agent: { id: 'planner', name: 'The planner', model: 'm-1' },
      state: 'acting',
    });
    expect((await place.run(['sessions', 'close', 'trip'])).code).toBe(0);
    const refused = await place.run(['call', 'greet', '--params', '{"name":"Ada"}', '--session', 'trip']);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('SESSION_CLOSED') });
  });

  test('a session with a budget is shown with its spending (I3)', async () => {
    const about = ['--tenant', 'acme', '--importance', 'background'];
    await place.run(['sessions', 'open', '--key', 'thrifty', '--budget', '{"calls":5}', ...about]);
    await place.run(['call', 'greet', '--params', '{"name":"Ada"}', '--session', 'thrifty']);
    const shown = await place.run(['sessions', 'show', 'thrifty', '--json']);
    expect(JSON.parse(shown.stdout)).toMatchObject({
      tenantId: 'acme',
      importance: 'background',
      spent: { calls: 1, costUnits: 1 },
    });
    const forPeople = (await place.run(['sessions', 'show', 'thrifty'])).stdout.split('\n');
    const fields = forPeople.slice(0, forPeople.indexOf('')).map((line) => line.split(/\s{2,}/)[0]);
    expect(fields).toEqual(
      ...[['session', 'kind', 'state', 'actor', 'tenant', 'workspace', 'importance', 'budget', 'spent', 'opened']],
    );
    expect(forPeople).toContainEqual(expect.stringMatching(/^spent +\{"calls":1,/));
  });

  test('a session is opened with a budget, and an invalid budget is refused with the expected form (I3)', async () => {
    const open = (...more: string[]) => place.run(['sessions', 'open', '--json', ...more]);
    const opened = await open('--budget', '{"calls":5,"perTurn":{"calls":2}}');
    expect(JSON.parse(opened.stdout)).toMatchObject({ budget: { calls: 5, perTurn: { calls: 2 } } });
    expect(await open('--budget', '{"calls":"many"}')).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/budget.*calls.*number/s),
    });
    expect(await open('--budget', 'five')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('It must be JSON'),
    });
    expect(await open('--skill', 'unheard-of')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('unheard-of'),
    });
  });
});
