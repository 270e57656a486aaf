import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TestProcess } from '../../helpers/process.ts';
import { startWire } from '../../helpers/proxy.ts';
import { eventually } from '../../helpers/signal.ts';
import { type CliFixture, openPlace } from '../pawl.ts';

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

/** The ID of the call that a session has running. */
async function runningIn(session: string): Promise<string> {
  const line = await worker.line(new RegExp(`"tool_call_start".*"sessionKey":"${session}"`));
  return (JSON.parse(line) as { callId: string }).callId;
}

describe('pawl call', () => {
  test('prints only the text that the tool shows to people', async () => {
    const { code, stdout, stderr } = await place.run(['call', 'greet', '--params', '{"name":"Ada"}']);
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'Hello, Ada!\n', stderr: '' });
  });

  test('prints the output as JSON when the tool shows nothing', async () => {
    const { code, stdout } = await place.run(['call', 'plain']);
    expect({ code, output: JSON.parse(stdout) as unknown }).toEqual({ code: 0, output: { answer: 42 } });
  });

  test('takes parameters from a file and from standard input, and prints the envelope with --json', async () => {
    writeFileSync(join(place.folder, 'ada.json'), '{"name":"Ada"}');
    const [fromFile, fromInput] = await Promise.all([
      place.run(['call', 'greet', '--params', '@ada.json', '--json']),
      place.run(['call', 'greet', '--params', '-', '--json'], { input: '{"name":"Bob"}' }),
    ]);
    expect(JSON.parse(fromFile.stdout)).toMatchObject({
      status: 'success',
      output: { content: { text: 'Hello, Ada!' } },
    });
    expect(JSON.parse(fromInput.stdout)).toMatchObject({
      status: 'success',
      output: { content: { text: 'Hello, Bob!' } },
    });
  });

  test('with the same key gives the same call from one command to the next (TR-2)', async () => {
    const args = ['call', 'greet', '--params', '{"name":"Ada"}', '--key', fresh(), '--json'];
    const first = await place.run(args);
    const second = await place.run(args);
    const { callId } = JSON.parse(first.stdout) as { callId: string };
    expect(JSON.parse(second.stdout)).toMatchObject({ callId, fromCache: true, cache: { matchedOn: 'completed' } });
  });

  test('a recorded failure is not taken for a new one', async () => {
    const fail = ['call', 'break', '--key', fresh()];
    expect((await place.run(fail)).stderr).not.toContain('ago');
    const again = await place.run(fail);
    expect(again).toMatchObject({ code: 1, stderr: expect.stringContaining('BROKEN') });
    expect(again.stderr).toMatch(/that was \S+ \S+ ago, and nothing ran now; another --key makes a new call/);
  });

  test('in a folder without a fleet, says so', async () => {
    const env = { REDIS_URL: undefined, PAWL_DATA_DIR: join(place.folder, 'elsewhere') };
    const first = await place.run(['calls'], { env });
    expect(first.stderr).toContain(`no Pawl has run in this folder: ${env.PAWL_DATA_DIR} is new`);
    expect((await place.run(['calls'], { env })).stderr).toBe('pawl: there are no calls\n');
  });

  test('sends its turn and its tags, so that budgets per turn count it (I17)', async () => {
    await place.run(['sessions', 'open', '--key', 'turns', '--budget', '{"perTurn":{"calls":1}}']);
    const call = (...more: string[]) => place.run(['call', 'plain', '--session', 'turns', '--key', fresh(), ...more]);
    expect(await call('--turn', '1', '--tag', 'importance:background')).toMatchObject({ code: 0 });
    expect(await call('--turn', '1')).toMatchObject({ stderr: expect.stringContaining('BUDGET_EXHAUSTED') });
    expect(await call('--turn', '2')).toMatchObject({ code: 0 });
    expect(await call('--tag', 'importance:huge')).toMatchObject({ code: 2, stderr: expect.stringContaining('huge') });
  });

  test('explains how to repeat a call more often than an agent may', async () => {
    let last = await place.run(['call', 'greet', '--params', '{"name":"Loop"}']);
    for (let calls = 1; last.code === 0 && calls < 30; calls += 1)
      last = await place.run(['call', 'greet', '--params', '{"name":"Loop"}']);
    expect(last).toMatchObject({ code: 1, stderr: expect.stringContaining('LOOP_DETECTED') });
    expect(last.stderr).toContain('pawl: or give an intended repetition a --key of its own\n');
    const meant = await place.run(['call', 'greet', '--params', '{"name":"Loop"}', '--key', fresh()]);
    expect(meant).toMatchObject({ code: 0, stdout: 'Hello, Loop!\n' });
  });

  test('takes parameters from a file that begins with a byte order mark', async () => {
    writeFileSync(join(place.folder, 'marked.json'), '\uFEFF{"name":"Ada"}');
    const greeted = await place.run(['call', 'greet', '--params', '@marked.json']);
    expect(greeted).toMatchObject({ code: 0, stdout: expect.stringContaining('Ada') });
  });

  test('refuses an invalid call with exit code 2 and one plain message', async () => {
    const ada = '{"name":"Ada"}';
    const refusals: readonly (readonly [string, readonly string[]])[] = [
      ['are not JSON', ['greet', '--params', '{name}']],
      ['must be a JSON object', ['greet', '--params', '[1]']],
      ['cannot be read', ['greet', '--params', '@nowhere.json']],
      ['INVALID_PARAMS', ['greet', '--params', '{"nam":"Ada"}']],
      ['Did you mean greet?', ['gret']],
      ['CONTRACT_INVALID', ['greet', '--params', ada, '--key', '']],
      ['There is no tool', ['greet', '--params', ada, '--namespace', 'elsewhere']],
    ];
    const answers = await Promise.all(refusals.map(([, args]) => place.run(['call', ...args])));
    for (const [index, { code, stdout, stderr }] of answers.entries()) {
      expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
      expect(stderr).toContain(refusals[index]?.[0]);
      expect(stderr).toMatch(/^pawl: [^\n]*\n$/);
    }
  });

  test('starts a call later, prints its ID and does not wait', async () => {
    const at = new Date(Date.now() + 86_400_000).toISOString();
    const [after, atTime, asJson] = await Promise.all([
      place.run(['call', 'plain', '--after', '10m', '--key', fresh()]),
      place.run(['call', 'plain', '--at', at, '--key', fresh()]),
      place.run(['call', 'plain', '--after', '2h', '--key', fresh(), '--json']),
    ]);
    for (const { code, stdout, stderr } of [after, atTime]) {
      expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('starts at') });
      expect(stdout).toMatch(/^\S+\n$/);
    }
    const json = JSON.parse(asJson.stdout) as { readonly callId: string; readonly startAtMs: number };
    expect([asJson.code, json]).toMatchObject([0, { state: 'inflight', phase: 'delayed' }]);
    const inMs = json.startAtMs - Date.now();
    expect(inMs).toBeGreaterThan(7_000_000);
    expect(inMs).toBeLessThanOrEqual(7_200_100);
    const listed = await place.run(['calls', 'ls', '--state', 'delayed', '--json']);
    const started = Object.values(JSON.parse(listed.stdout) as object).flat() as readonly {
      readonly callId: string;
      readonly startAtMs: number;
    }[];
    expect(started.find(({ callId }) => callId === atTime.stdout.trim())).toMatchObject({ startAtMs: Date.parse(at) });
    for (const callId of [after.stdout.trim(), atTime.stdout.trim(), json.callId])
      expect(await place.run(['calls', 'cancel', callId])).toMatchObject({ code: 0 });
  });

  test.each([
    ['together', ['--after', '10m', '--at', '2027-01-31T08:00:00Z']],
    ['in the past', ['--at', '2020-01-01T00:00:00Z']],
    ['ISO 8601', ['--at', 'tomorrow']],
    ['365 days', ['--after', '366d']],
    ['time span', ['--after', 'soon']],
  ])('refuses a start that is none: %s', async (message, args) => {
    const { code, stdout, stderr } = await place.run(['call', 'plain', '--key', fresh(), ...args]);
    expect({ code, stdout, stderr }).toEqual({ code: 2, stdout: '', stderr: expect.stringContaining(message) });
  });

  test('posts the end of a call to the URL of --callback, and refuses one that is none', async () => {
    const url = 'http://127.0.0.1:9/settled';
    expect(await place.run(['call', 'plain', '--callback', url, '--key', fresh()])).toMatchObject({ code: 0 });
    const listed = await eventually(async () => {
      const { stdout } = await place.run(['callbacks', 'ls', '--state', 'failing', '--json']);
      const { callbacks } = JSON.parse(stdout) as { readonly callbacks: readonly { readonly url: string }[] };
      return callbacks.length > 0 && callbacks;
    });
    expect(listed).toMatchObject([{ url, lastError: expect.any(String) }]);
    const refused = await place.run(['call', 'plain', '--callback', 'nowhere', '--key', fresh()]);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('callbackUrl: must be a URL') });
  });

  test('gives 1 for an error of the tool, 4 for a timeout, 5 when denied', async () => {
    await place.run(['sessions', 'open', '--kind', 'worker', '--key', 'helper']);
    const [failed, late, denied] = await Promise.all([
      place.run(['call', 'break']),
      place.run(['call', 'linger', '--params', '{"ms":60000}', '--key', fresh(), '--timeout', '300']),
      place.run(['call', 'linger', '--params', '{"ms":1}', '--session', 'helper']),
    ]);
    expect(failed).toMatchObject({ code: 1, stderr: 'pawl: break: BROKEN: it is broken\n' });
    expect(late).toMatchObject({ code: 4, stderr: expect.stringContaining('linger: ') });
    expect(denied).toMatchObject({ code: 5, stderr: expect.stringContaining('PERMISSION_DENIED') });
  });

  test('gives 3 while the circuit is open; a reset closes it', async () => {
    const forced = await place.run(['circuits', 'force-open', 'plain', '--reason', 'maintenance', '--json']);
    expect(JSON.parse(forced.stdout)).toMatchObject({ circuits: [{ key: 'tool:tools.plain', state: 'FORCED_OPEN' }] });
    const refused = await place.run(['call', 'plain', '--key', fresh()]);
    expect(refused).toMatchObject({ code: 3, stderr: expect.stringContaining('CIRCUIT_OPEN') });
    expect((await place.run(['circuits'])).stdout).toContain('maintenance');
    expect((await place.run(['circuits', 'reset', 'tool:tools.plain'])).code).toBe(0);
    expect((await place.run(['call', 'plain', '--key', fresh()])).code).toBe(0);
  });

  test('waits for a worker that has the tool, and explains how to start one', async () => {
    await using elsewhere = await openPlace();
    const short = await elsewhere.worker();
    short.signal('SIGTERM');
    expect(await short.ended).toEqual({ code: 0, signal: null });
    const call = elsewhere.start(['call', 'greet', '--params', '{"name":"Ada"}', '--timeout', '20000']);
    expect(await call.line('no worker')).toContain("'pawl worker --tiers read-only'");
    const late = await elsewhere.worker();
    expect(await call.ended).toEqual({ code: 0, signal: null });
    late.signal('SIGTERM');
    await late.ended;
  });

  test('reports that the last worker with the tool has ended', { tags: 'slow' }, async () => {
    await using elsewhere = await openPlace();
    const only = await elsewhere.worker();
    const call = elsewhere.start(['call', 'linger', '--params', '{"ms":60000}']);
    await only.line('"tool_call_start"');
    only.signal('SIGKILL');
    await only.ended;
    expect(await call.line('is running any more')).toContain("'pawl worker --tiers");
    call.signal('SIGINT');
    await call.line('once more leaves it');
    call.signal('SIGINT');
    expect((await call.ended).code).toBe(1);
  });

  test('Ctrl-C cancels the call, and the command reports the settlement', async () => {
    const key = fresh();
    const call = place.start(['call', 'linger', '--params', '{"ms":60000}', '--key', key, '--session', 'ctrl-c']);
    const callId = await runningIn('ctrl-c');
    call.signal('SIGINT');
    await call.line('its effect may have happened');
    expect((await call.ended).code).toBe(1);
    expect(call.stderr()).toContain('CANCELLED');
    const { stdout } = await place.run(['calls', 'show', callId]);
    expect(stdout).toMatch(/state +cancelled/);
    expect(stdout).toContain('unsettled');
  });
});

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
    const callId = await runningIn('other');
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
