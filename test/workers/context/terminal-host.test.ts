/** Programs that outlive their call (C16), in one worker. */
import { randomInt } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { describe, expect, inject, onTestFinished, test, vi } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import type { TerminalReport, Terminals } from '../../../src/shared/tools/capabilities.ts';
import { detectIsolation } from '../../../src/workers/context/processes.ts';
import type { TerminalLink } from '../../../src/workers/context/remote-terminal.ts';
import { TerminalHost, type TerminalHostOptions } from '../../../src/workers/context/terminal-host.ts';
import { ISOLATION_MODES } from '../../../src/workers/sandbox/isolation.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { eventually } from '../../helpers/signal.ts';

const available = await detectIsolation();

function hostWith({
  sandbox = inject('sandbox'),
  limits,
  link,
}: Pick<TerminalHostOptions, 'limits' | 'link'> & { sandbox?: TerminalHostOptions['sandbox'] } = {}) {
  const host = new TerminalHost({
    env: { PATH: process.env['PATH'] },
    sandbox,
    ...(limits === undefined ? {} : { limits }),
    ...(link === undefined ? {} : { link }),
  });
  onTestFinished(() => host.close());
  const root = temporaryFolder();
  const open = (sessionKey = 'mine', signal = new AbortController().signal) =>
    host.open({ callId: 'call', sessionKey, root, signal });
  return { host, root, open, terminals: open() };
}

const start = (terminals: Terminals, cmd: string, more: { tty?: boolean; timeoutMs?: number; waitMs?: number } = {}) =>
  terminals.start({ argv: ['sh', '-c', cmd], timeoutMs: 60_000, waitMs: 5_000, ...more });

/** Starts a terminal whose program runs, and returns its id. */
async function startSleep(terminals: Terminals, token: string): Promise<string> {
  const id = idOf(await start(terminals, `sleep ${token}`, { waitMs: 0 }));
  await eventually(() => running(token));
  return id;
}

function idOf({ state }: TerminalReport): string {
  if (state.kind !== 'running') throw new Error(`it has ended: ${JSON.stringify(state)}`);
  return state.terminalId;
}

/** Reads the terminal's output until `wanted` appears. */
async function readUntil(terminals: Terminals, id: string, wanted: string | RegExp, first = ''): Promise<string> {
  let text = first;
  await eventually(
    async () => {
      text += (await terminals.write(id, '', 5)).output;
      return typeof wanted === 'string' ? text.includes(wanted) : wanted.test(text);
    },
    { what: `${wanted} on the terminal` },
  );
  return text;
}

function running(token: string): boolean {
  return readdirSync('/proc').some((name) => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(token);
    } catch {
      return false;
    }
  });
}

const uniqueSleep = (): string => `1000.${randomInt(1e9, 1e10)}`;

describe.each(ISOLATION_MODES)('in isolation mode %s', (sandbox) => {
  const run = test.skipIf(!available.includes(sandbox));

  run('a program reads what is typed later, sees a terminal, and tells its exit code', async () => {
    const { terminals, root } = hostWith({ sandbox });
    const first = await start(terminals, 'test -t 0 && test -t 2 && pwd; read line; echo "got $line" >&2; exit 3', {
      waitMs: 0,
    });
    const id = idOf(first);
    const text = await readUntil(terminals, id, '\n', first.output);
    expect(text).toBe(`${realpathSync(root)}\r\n`);
    const last = await terminals.write(id, 'hello\n', 5_000);
    expect(last.output).toBe('hello\r\ngot hello\r\n');
    expect(last.state).toEqual({ kind: 'ended', exitCode: 3, signal: null, timedOut: false });
    await expect(terminals.write(id, '', 0)).rejects.toMatchObject({ code: 'NOT_FOUND' });
  });

  run('closing ends the whole tree', async () => {
    const { host, terminals } = hostWith({ sandbox });
    const token = uniqueSleep();
    const leave = sandbox === 'group' ? '' : `(setsid sleep ${token} </dev/null >/dev/null 2>&1 &);`;
    idOf(await start(terminals, `${leave} sleep ${token} & sleep ${token}`, { waitMs: 50 }));
    await eventually(() => running(token));
    await host.close();
    await eventually(() => !running(token), { what: 'the end of the tree' });
  });
});

test('Ctrl-C reaches the program in the foreground, and the shell continues', async () => {
  const { terminals } = hostWith();
  const token = uniqueSleep();
  const first = await terminals.start({ argv: ['sh', '-i'], timeoutMs: 60_000, waitMs: 0 });
  const id = idOf(first);
  await terminals.write(id, `sleep ${token}\n`, 0);
  await eventually(() => running(token));
  const { output } = await terminals.write(id, '\u0003', 0);
  // A shell discards input that was typed before its next prompt.
  await readUntil(terminals, id, /\n[#$] $/, output);
  expect(running(token)).toBe(false);
  const { output: next } = await terminals.write(id, 'echo code $((100 + $?))\n', 0);
  await readUntil(terminals, id, 'code 230', next);
  expect(await terminals.write(id, 'exit 5\n', 5_000)).toMatchObject({ state: { kind: 'ended', exitCode: 5 } });
});

test('without a terminal a program sees pipes, and both outputs come as one', async () => {
  const { terminals } = hostWith();
  const report = await start(terminals, 'test -t 1 || echo pipe; echo error >&2; exit 1', { tty: false });
  expect(report.output).toContain('pipe\n');
  expect(report.output).toContain('error\n');
  expect(report.state).toMatchObject({ kind: 'ended', exitCode: 1 });
});

describe('a program on pipes', () => {
  test('gets the end of its input by Ctrl-D, and no input after that', async () => {
    const { terminals } = hostWith();
    const waiting = 'cat; echo ended; read -r line < wait';
    const id = idOf(await start(terminals, `mkfifo wait; ${waiting}`, { tty: false, waitMs: 0 }));
    expect(await readUntil(terminals, id, 'ended', (await terminals.write(id, 'typed\u0004', 0)).output)).toBe(
      'typedended\n',
    );
    await expect(terminals.write(id, 'more', 0)).rejects.toMatchObject({
      code: 'PRECONDITION_FAILED',
      message: expect.stringContaining('ended with Ctrl-D; nothing was typed'),
    });
  });

  test('is killed by Ctrl-C, with all that it started', async () => {
    const { terminals } = hostWith();
    const token = uniqueSleep();
    const first = await start(terminals, `sleep ${token} & echo on; wait`, { tty: false, waitMs: 0 });
    await readUntil(terminals, idOf(first), 'on\n', first.output);
    const { state } = await terminals.write(idOf(first), '\u0003', 5_000);
    expect(state).toMatchObject({ kind: 'ended', exitCode: null, signal: 'SIGKILL' });
    expect(running(token)).toBe(false);
  });
});

test('a long output keeps its beginning and its end, with a mark between them', async () => {
  const { terminals } = hostWith();
  const { output, droppedBytes } = await start(terminals, 'echo first; seq 1 100000; echo last', { tty: false });
  expect(droppedBytes).toBeGreaterThan(400_000);
  expect(output.length).toBeLessThan(70_000);
  expect(output).toMatch(/^first\n1\n2\n/);
  expect(output).toContain(`[truncated: ${droppedBytes} bytes are missing here]`);
  expect(output).toMatch(/\n100000\nlast\n$/);
});

test('the time limit ends the tree, and the report has timedOut', async () => {
  const { terminals } = hostWith();
  const token = uniqueSleep();
  const report = await start(terminals, `echo on; sleep ${token}`, { timeoutMs: 2_500 });
  expect(report).toMatchObject({ output: 'on\r\n', state: { kind: 'ended', exitCode: null, timedOut: true } });
  expect(running(token)).toBe(false);
});

test('an idle terminal is ended', async () => {
  const { terminals } = hostWith({ limits: { idleMs: 100 } });
  const token = uniqueSleep();
  const id = idOf(await start(terminals, `sleep ${token}`, { waitMs: 0 }));
  // Looking counts as use, so the looks are further apart than the idle limit.
  const gone = () =>
    terminals.write(id, '', 0).then(
      () => false,
      (error) => error.code === 'NOT_FOUND',
    );
  await eventually(gone, { what: 'the end of an idle terminal', everyMs: 300 });
  await eventually(() => !running(token), { what: 'the end of its program' });
});

test('a session and a worker have a limited number of terminals', async () => {
  const { terminals, open } = hostWith({ limits: { maxPerSession: 2, maxTerminals: 3 } });
  const sleeper = `sleep ${uniqueSleep()}`;
  const started = await Promise.allSettled([1, 2, 3].map(() => start(terminals, sleeper, { waitMs: 10 })));
  const refused = started.filter((each) => each.status === 'rejected');
  expect(refused).toHaveLength(1);
  expect(refused[0]?.reason).toMatchObject({ code: 'TOO_MANY_TERMINALS', nothingHappened: true });
  await start(open('other'), sleeper, { waitMs: 10 });
  await expect(start(open('third'), sleeper)).rejects.toThrow('This worker already has 3');
});

test('a terminal belongs to its session, and ends with it', async () => {
  const { host, terminals, open } = hostWith();
  const token = uniqueSleep();
  const id = await startSleep(terminals, token);
  await expect(open('other').write(id, 'x', 0)).rejects.toMatchObject({ code: 'NOT_FOUND' });
  host.endSession('other');
  expect(running(token)).toBe(true);
  host.endSession('mine');
  await eventually(() => !running(token));
});

test('cancelling the call that starts a program ends it, cancelling a look does not', async () => {
  const { open, terminals } = hostWith();
  const token = uniqueSleep();
  const cancel = new AbortController();
  const starting = start(open('mine', cancel.signal), `sleep ${token}`, { waitMs: 60_000 });
  const refused = expect(starting).rejects.toThrow('enough');
  await eventually(() => running(token));
  cancel.abort(new Error('enough'));
  await refused;
  await eventually(() => !running(token));

  const id = await startSleep(terminals, token);
  const look = new AbortController();
  const looking = open('mine', look.signal).write(id, '', 60_000);
  look.abort(new Error('enough'));
  await expect(looking).rejects.toThrow('enough');
  expect(idOf(await terminals.write(id, '', 0))).toBe(id);
});

test('a program whose terminal Redis does not record never starts', async () => {
  const refused = new PawlError('BACKEND_UNAVAILABLE');
  const unregister = vi.fn();
  const link = { onWrite() {}, register: async () => Promise.reject(refused), unregister, close: async () => {} };
  const { root, terminals } = hostWith({ link: link as unknown as TerminalLink });
  await expect(start(terminals, 'touch began; sleep 1000')).rejects.toBe(refused);
  expect(existsSync(join(root, 'began'))).toBe(false);
  expect(unregister).toHaveBeenCalledOnce();
});

test('a worker that cannot open terminals leaves nothing in the workspace', async () => {
  const binary = createRequire(import.meta.url)('@lydell/node-pty/requireBinary.js') as { requireBinary(): unknown };
  const missing = vi.spyOn(binary, 'requireBinary').mockImplementation(() => {
    throw new Error('no such binary');
  });
  onTestFinished(() => missing.mockRestore());
  const { root, terminals } = hostWith();
  await expect(start(terminals, 'exit 0')).rejects.toMatchObject({ code: 'CONFIGURATION' });
  expect(readdirSync(root)).toEqual([]);
});

test('a program that is absent, and one outside of the workspace, are refused', async () => {
  const { terminals } = hostWith();
  const request = { timeoutMs: 1_000, waitMs: 0 };
  await expect(terminals.start({ ...request, argv: ['no-such-shell'] })).rejects.toMatchObject({ code: 'NOT_FOUND' });
  await expect(terminals.start({ ...request, argv: ['sh'], cwd: '..' })).rejects.toMatchObject({
    code: 'PERMISSION_DENIED',
  });
});

test('a program that does not read its input blocks no other call, and later gets all of it', async () => {
  const { root, terminals } = hostWith();
  const waits = 'n=0; until [ -e go ]; do n=$((n + 1)); [ $n -gt 100 ] && exit 1; sleep 0.05; done';
  const first = await start(terminals, `stty raw -echo; echo ready; ${waits}; head -c 65536 | wc -c`, { waitMs: 0 });
  const id = idOf(first);
  await readUntil(terminals, id, 'ready', first.output);
  await terminals.write(id, 'x'.repeat(65_536), 0);
  writeFileSync(join(root, 'go'), '');
  const { output, state } = await terminals.write(id, '', 10_000);
  expect({ output: output.trim(), state }).toMatchObject({ output: '65536', state: { kind: 'ended', exitCode: 0 } });
});
