import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TestProcess } from '../../helpers/process.ts';
import { eventually } from '../../helpers/signal.ts';
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
    const callId = await runningCall(worker, 'ctrl-c');
    call.signal('SIGINT');
    await call.line('its effect may have happened');
    expect((await call.ended).code).toBe(1);
    expect(call.stderr()).toContain('CANCELLED');
    const { stdout } = await place.run(['calls', 'show', callId]);
    expect(stdout).toMatch(/state +cancelled/);
    expect(stdout).toContain('unsettled');
  });
});
