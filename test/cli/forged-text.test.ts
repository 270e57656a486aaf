/** Texts of callers, models and tools draw no line of their own in what `pawl` prints, and hide nothing of it. */
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { TestProcess } from '../helpers/process.ts';
import { eventually } from '../helpers/signal.ts';
import { type CliFixture, openPlace } from './pawl.ts';

const FORGING_TOOLS = fileURLToPath(new URL('./fixtures/forging-tools.ts', import.meta.url));

let place: CliFixture;
let worker: TestProcess;
beforeAll(async () => {
  place = await openPlace();
  worker = place.start(['worker', '--tools', FORGING_TOOLS, '--json']);
  await worker.line('"event":"ready"');
});
afterAll(async () => {
  worker.signal('SIGKILL');
  await worker.ended;
  await place[Symbol.asyncDispose]();
});

/** One of each kind: line breaks, controls, bidirectional and zero-width characters, fillers, tags. */
const DECEPTIVE = [
  ...['\n', '\r', '\r\n', '\t', '\v', '\f', '\b', '\u001b[2K', '\u007f', '\u0085', '\u009b1A', '\u2028', '\u2029'],
  ...['\u00ad', '\u034f', '\u061c', '\u115f', '\u180e', '\u200b', '\u200d', '\u200e', '\u202e', '\u2060', '\u2066'],
  ...['\u3164', '\ufe0f', '\ufeff', '\uffa0', '\ufff9', '\u{e0041}'],
  ...['\u2800', '\ufffc', '\u{1d159}', '\u0336'.repeat(9)],
];
const HOSTILE = DECEPTIVE.map((character) => `${character}approval FORGED`).join('');
const HIDDEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u;
const LINES_OF_ITS_OWN = /^\s*approval FORGED/mu;

test('no text of a caller, a model or a tool moves a cursor, hides, or begins a line, in any command', async () => {
  const key = `key${HOSTILE.slice(0, 240)}`;
  const actor = `actor${HOSTILE.slice(240, 480)}`;
  const agent = `agent${HOSTILE.slice(-240)}`;
  const opened = await place.run([
    'sessions',
    'open',
    '--key',
    key,
    '--actor',
    actor,
    '--agent',
    agent,
    '--channel',
    'operator',
  ]);
  expect(opened.code).toBe(0);
  const params = JSON.stringify({ what: `what${HOSTILE}`, justification: `because${HOSTILE}` });
  const call = place.start(['call', 'sign', '--session', key, '--params', params]);
  const { id, callId } = await eventually(
    async () => {
      const { stdout } = await place.run(['approvals', '--json']);
      return (JSON.parse(stdout) as { approvals: { id: string; callId: string }[] }).approvals[0];
    },
    { what: 'a pending approval' },
  );
  const looks = [
    ...[['approvals'], ['approvals', 'show', id], ['sessions'], ['sessions', 'show', key]],
    ...[['calls'], ['calls', 'show', callId], ['calls', '--session', key], ['audit'], ['audit', '--session', key]],
    ['policy', 'explain', 'sign', '--session', key, '--params', params],
  ];
  const check = async (args: readonly string[]) => {
    const { stdout, stderr } = await place.run(args);
    for (const text of [stdout, stderr]) {
      expect(text, args.join(' ')).not.toMatch(HIDDEN);
      expect(text, args.join(' ')).not.toMatch(LINES_OF_ITS_OWN);
    }
    return stdout;
  };
  for (const args of looks) {
    await check(args);
    JSON.parse(await check([...args, '--json']));
  }
  expect(JSON.parse((await place.run(['approvals', 'show', id, '--json'])).stdout)).toMatchObject({
    session: key,
    requestedBy: actor,
    agentId: agent,
    justification: `because${HOSTILE}`,
  });
  await check(['approvals', 'deny', id, '--reason', `no${HOSTILE}`]);
  expect((await call.ended).code).toBe(5);
  for (const text of [call.stdout(), call.stderr()]) {
    expect(text).not.toMatch(HIDDEN);
    expect(text).not.toMatch(LINES_OF_ITS_OWN);
  }
  for (const args of [...looks, ['sessions', 'close', key], ['sessions', 'show', `no${HOSTILE}`.slice(0, 200)]])
    await check(args);
});

test('log lines and errors of tools show invisible characters', async () => {
  const { code, stderr } = await place.run(['call', 'mutter', '--params', JSON.stringify({ text: `said ${HOSTILE}` })]);
  expect(code).toBe(1);
  expect(stderr).not.toMatch(HIDDEN);
  expect(stderr).not.toMatch(LINES_OF_ITS_OWN);
  const logged = await eventually(async () => /^.*"msg":"said.*$/m.exec(worker.stderr())?.[0], {
    what: 'the log line',
  });
  expect(logged).not.toMatch(HIDDEN);
  expect(JSON.parse(logged)).toMatchObject({ msg: `said ${HOSTILE}`, [`said ${HOSTILE}`]: `said ${HOSTILE}` });
});

test('a list of approvals shows the effect of each, with or without a preview of its tool', async () => {
  await place.run(['sessions', 'open', '--key', 'plain', '--channel', 'operator']);
  const what = `${'a long and harmless beginning '.repeat(5)}and the end that matters`;
  const call = place.start(['call', 'sign', '--session', 'plain', '--params', JSON.stringify({ what })]);
  const untold = place.start(['call', 'erase', '--session', 'plain', '--params', '{"path":"/home"}']);
  const listed = await eventually(
    async () => {
      const { stdout } = await place.run(['approvals']);
      return stdout.includes('harmless') && stdout.includes('erase') && stdout;
    },
    { what: 'two pending approvals' },
  );
  expect(listed).toContain(`Sign ${what}`);
  expect(listed).toContain('erase (elevated) { "path": "/home" }');
  for (const { callId } of (
    JSON.parse((await place.run(['approvals', '--json'])).stdout) as { approvals: { callId: string }[] }
  ).approvals)
    await place.run(['approvals', 'deny', callId]);
  await Promise.all([call.ended, untold.ended]);
});
