import { randomInt } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { detectIsolation, openProcesses, type ProcessesOptions } from '../../../src/workers/context/processes.ts';
import { ISOLATION_MODES, type Isolation } from '../../../src/workers/sandbox/isolation.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { startScript } from '../../helpers/process.ts';
import { eventually } from '../../helpers/signal.ts';

const available = await detectIsolation();
for (const isolation of ISOLATION_MODES) {
  if (!available.includes(isolation))
    console.warn(`Isolation mode ${isolation} does not work here; its tests are skipped.`);
}

function processesOf(options: Partial<ProcessesOptions> = {}) {
  return openProcesses({
    root: temporaryFolder(),
    callId: 'call',
    signal: new AbortController().signal,
    env: { PATH: process.env['PATH'] },
    ...options,
  });
}

/**
 * A number of seconds that no other process of this machine sleeps for. It marks the command lines of all processes of
 * a test.
 */
const uniqueSleep = (): string => `1000.${randomInt(1e9, 1e10)}`;

/** The IDs on this host of the processes with `token` in their command line, including those in namespaces. */
function processesWith(token: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((id) => {
      try {
        return readFileSync(`/proc/${id}/cmdline`, 'utf8').includes(token);
      } catch {
        return false;
      }
    });
}

/** Another process that runs `argv` `count` times at once, as a worker does. */
const workerWith = (isolation: Isolation, count: number, argv: readonly string[]) =>
  startScript(new URL('../fixtures/run-processes.ts', import.meta.url), [
    temporaryFolder(),
    isolation,
    String(count),
    ...argv,
  ]);

const sleepersOf = (token: string): number =>
  processesWith(token).filter((id) => readFileSync(`/proc/${id}/cmdline`, 'utf8') === `sleep\0${token}\0`).length;

/** Replaces its own process image again and again; between two images, the kernel shows no environment. */
const AGAIN = 'exec sh -c "$0" "$0" "$1"';

/** Starts four sleepers: in the foreground, in the background, immune to hang-ups, and double-forked into a session of its own. */
const forest = (token: string): [string, ...string[]] => [
  'sh',
  '-c',
  `sleep ${token} & nohup sleep ${token} >/dev/null 2>&1 & (setsid sleep ${token} </dev/null >/dev/null 2>&1 &) & sleep ${token}`,
];
/** The same without the one that leaves the process group. */
const grove = (token: string): [string, ...string[]] => [
  'sh',
  '-c',
  `sleep ${token} & nohup sleep ${token} >/dev/null 2>&1 & (sleep ${token} </dev/null >/dev/null 2>&1 &) & sleep ${token}`,
];

describe.each(ISOLATION_MODES)('in isolation mode %s', (sandbox: Isolation) => {
  const run = test.skipIf(!available.includes(sandbox));
  const tree = sandbox === 'group' ? grove : forest;
  // A keeper finds such programs by searching for them; elsewhere the kernel ends them, or the group.
  const raced = { tags: sandbox === 'keeper' ? [] : ['slow'] };

  run('exit code, both outputs, standard input and folder', async () => {
    const root = temporaryFolder();
    mkdirSync(join(root, 'sub'));
    const processes = processesOf({ root, sandbox });
    const result = await processes.run({
      argv: ['sh', '-c', 'cat; echo oops >&2; pwd; exit 3'],
      stdin: 'input\n',
      cwd: 'sub',
    });
    expect(result).toMatchObject({
      exitCode: 3,
      signal: null,
      stdout: `input\n${realpathSync(root)}/sub\n`,
      stderr: 'oops\n',
      timedOut: false,
      truncated: { stdoutBytes: 0, stderrBytes: 0 },
    });
  });

  run('no shell interprets the arguments, nor takes the program for a builtin', async () => {
    const processes = processesOf({ sandbox });
    const words = [
      '$HOME',
      '`id`',
      '$(id)',
      '; exit 9',
      '| id',
      '&& id',
      '\nid',
      '<(id)',
      '> out',
      '{a,b}',
      '~',
      '*',
      "'",
      '"',
    ];
    words.push('\\', '-n', 'ü\n', '');
    const result = await processes.run({ argv: ['printf', '[%s]', ...words] });
    expect(result.stdout).toBe(words.map((word) => `[${word}]`).join(''));
    for (const builtin of ['eval', 'exec', 'exit', 'export']) {
      await expect(processes.run({ argv: [builtin, 'true'] })).rejects.toMatchObject({ code: 'NOT_FOUND' });
    }
  });

  run(
    'a program that a signal ended has exit code 128 + the number, as in shells, and nothing is added to its output',
    async () => {
      const result = await processesOf({ sandbox }).run({ argv: ['sh', '-c', 'kill -TERM $$'] });
      expect(result).toMatchObject({ exitCode: 143, signal: 'SIGTERM', timedOut: false, stdout: '', stderr: '' });
    },
  );

  run('what still runs when the program ends is ended', async () => {
    const token = uniqueSleep();
    const leave = sandbox === 'group' ? '' : `(setsid sleep ${token} </dev/null >/dev/null 2>&1 &);`;
    const result = await processesOf({ sandbox }).run({ argv: ['sh', '-c', `${leave} sleep ${token} & echo started`] });
    expect(result).toMatchObject({ exitCode: 0, stdout: 'started\n' });
    await eventually(() => processesWith(token).length === 0, { what: 'the end of what was left' });
  });

  run('the time limit ends the tree, and gives the output so far', async () => {
    const token = uniqueSleep();
    const argv = tree(token);
    const result = await processesOf({ sandbox }).run({
      argv: [argv[0], '-c', `echo first; ${argv[2]}`],
      timeoutMs: 2_500,
    });
    expect(result).toMatchObject({ exitCode: null, signal: 'SIGKILL', timedOut: true, stdout: 'first\n', stderr: '' });
    expect(processesWith(token)).toEqual([]);
  });

  run('abort ends the tree and rejects with the reason of the signal', async () => {
    const token = uniqueSleep();
    const call = new AbortController();
    const running = processesOf({ sandbox, signal: call.signal }).run({ argv: tree(token) });
    await eventually(() => sleepersOf(token) === 4, { what: 'four sleepers' });
    const reason = new PawlError('CANCELLED', 'Enough.');
    call.abort(reason);
    await expect(running).rejects.toBe(reason);
    expect(processesWith(token)).toEqual([]);
  });

  run('kill -9 of the worker leaves nothing of the tree', async () => {
    const token = uniqueSleep();
    const worker = workerWith(sandbox, 1, tree(token));
    await eventually(() => sleepersOf(token) === 4, { what: 'four sleepers' });
    await worker.kill();
    await eventually(() => processesWith(token).length === 0, { what: 'the end of the tree' });
  });

  run('kill -9 of the worker leaves nothing of what becomes one program after another', raced, async () => {
    const start = sandbox === 'group' ? 'sh' : 'setsid sh';
    for (let turn = 0; turn < 2; turn += 1) {
      const token = uniqueSleep();
      const argv = ['sh', '-c', `${start} -c '${AGAIN}' '${AGAIN}' ${token} & sleep ${token}`];
      const worker = workerWith(sandbox, 8, argv);
      await eventually(() => sleepersOf(token) === 8, { what: 'eight sleepers' });
      await worker.kill();
      await eventually(() => processesWith(token).length === 0, { what: 'the end of all programs' });
    }
  });

  run('kill -9 of the worker while programs are just being started leaves nothing', raced, async () => {
    for (let turn = 0; turn < 2; turn += 1) {
      const token = uniqueSleep();
      const worker = workerWith(sandbox, 12, tree(token));
      // The worker's own command line holds the token, too. One more is the first of its programs, which is starting.
      await eventually(() => processesWith(token).length > 2 + turn * 4, { everyMs: 1, what: 'a first program' });
      await worker.kill();
      await eventually(() => processesWith(token).length === 0, { what: 'the end of all programs' });
    }
  });

  run('a planted secret, the Redis URL and tokens do not reach a program', async () => {
    const env = {
      PATH: process.env['PATH'],
      LC_ALL: 'C',
      REDIS_URL: 'redis://:hunter2@host',
      PAWL_SIGNING_KEYS: 'k:hunter2',
      OPENAI_API_KEY: 'hunter2',
      NODE_OPTIONS: '--title=hunter2',
      LD_PRELOAD: 'hunter2',
    };
    const result = await processesOf({ sandbox, env, callId: 'c7' }).run({ argv: ['env'], env: { ADDED: 'yes' } });
    expect(result.stdout).not.toContain('hunter2');
    const names = result.stdout
      .trim()
      .split('\n')
      .map((line) => line.split('=')[0]);
    const allowed = [
      'ADDED',
      'LC_ALL',
      'PATH',
      'PAWL_CALL_ID',
      'PWD',
      'TERM',
      ...(sandbox === 'bubblewrap' ? ['TMPDIR'] : []),
    ];
    expect(names.sort()).toEqual(allowed);
    expect(result.stdout).toMatch(/^ADDED=yes$/m);
    expect(result.stdout).toMatch(/^TERM=dumb$/m);
    expect(result.stdout).toMatch(/^PAWL_CALL_ID=c7\.[0-9a-f]{16}$/m);
  });

  run('output beyond the cap is dropped and counted, and the program is not held up', async () => {
    const script = 'head -c 3000000 /dev/zero | tr "\\0" a; head -c 100 /dev/zero | tr "\\0" b >&2';
    const result = await processesOf({ sandbox }).run({ argv: ['sh', '-c', script], maxOutputBytes: 1_000 });
    expect(result).toMatchObject({ exitCode: 0, stdout: 'a'.repeat(1_000), stderr: 'b'.repeat(100) });
    expect(result.truncated).toEqual({ stdoutBytes: 2_999_000, stderrBytes: 0 });
  });
});

describe('before anything is started', () => {
  test('a program that is absent is NOT_FOUND with its name', async () => {
    const processes = processesOf();
    await expect(processes.run({ argv: ['no-such-program'] })).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'Program not found: no-such-program.',
    });
    await expect(processes.run({ argv: ['./absent'] })).rejects.toMatchObject({ code: 'NOT_FOUND' });
    await expect(processes.run({ argv: ['ls -la'] })).rejects.toThrow('separate elements');
    await expect(processes.run({ argv: [''] })).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
  });

  test('a script of the workspace runs by its path, and one that is not executable is PERMISSION_DENIED', async () => {
    const root = temporaryFolder();
    writeFileSync(join(root, 'own-script'), '#!/bin/sh\necho "ran $1"\n', { mode: 0o755 });
    writeFileSync(join(root, 'plain'), 'text', { mode: 0o644 });
    const processes = processesOf({ root });
    expect((await processes.run({ argv: ['./own-script', 'so'] })).stdout).toBe('ran so\n');
    await expect(processes.run({ argv: ['./plain'] })).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    await expect(processes.run({ argv: ['own-script'] })).rejects.toMatchObject({ code: 'NOT_FOUND' });
  });

  test.each([
    ['#!/no/such/interpreter\n', '"/no/such/interpreter".'],
    ['#! /no/such/interpreter -x\necho\n', '"/no/such/interpreter".'],
    ['#!/bin/sh\r\necho\r\n', '"/bin/sh\\r". Its lines end in CR LF, and must end in LF.'],
    ['#!/etc\n', '"/etc".'],
  ])('a script whose interpreter is missing is not reported as missing itself: %j', async (text, named) => {
    const root = temporaryFolder();
    writeFileSync(join(root, 'script'), text, { mode: 0o755 });
    await expect(processesOf({ root }).run({ argv: ['./script'] })).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: `The first line of ./script names an interpreter that does not exist: ${named}`,
    });
  });

  test.each(['#!/bin/sh', '#!\necho', '#!sh\necho', 'echo', '', '\0#!/no/such\n'])(
    'any other executable file is started: %j',
    async (text) => {
      const root = temporaryFolder();
      writeFileSync(join(root, 'script'), text, { mode: 0o755 });
      await expect(processesOf({ root }).run({ argv: ['./script'] })).resolves.toMatchObject({ timedOut: false });
    },
  );

  test('a folder outside the workspace, an absent one and a file are refused (A11)', async () => {
    const root = temporaryFolder();
    symlinkSync('/etc', join(root, 'link'));
    writeFileSync(join(root, 'file'), '');
    const processes = processesOf({ root });
    for (const [cwd, code] of [
      ['..', 'PERMISSION_DENIED'],
      ['/etc', 'PERMISSION_DENIED'],
      ['link', 'PERMISSION_DENIED'],
      ['absent', 'NOT_FOUND'],
      ['file', 'INVALID_PARAMS'],
    ] as const) {
      await expect(processes.run({ argv: ['pwd'], cwd })).rejects.toMatchObject({ code });
    }
  });

  test('NUL in an argument, a command line that is too long and loader variables are INVALID_PARAMS', async () => {
    const processes = processesOf();
    const invalid = { code: 'INVALID_PARAMS' };
    await expect(processes.run({ argv: ['echo', 'a\0b'] })).rejects.toMatchObject(invalid);
    await expect(processes.run({ argv: ['echo', 'x'.repeat(3_000_000)] })).rejects.toMatchObject(invalid);
    for (const env of [{ LD_PRELOAD: 'x' }, { 'A=B': 'x' }, { A: 'a\0b' }, { PAWL_CALL_ID: 'x' }]) {
      await expect(processes.run({ argv: ['true'], env })).rejects.toMatchObject(invalid);
    }
  });

  test('a signal that has been aborted already starts nothing', async () => {
    const reason = new PawlError('DRAINED');
    const processes = processesOf({ signal: AbortSignal.abort(reason) });
    await expect(processes.run({ argv: ['true'] })).rejects.toBe(reason);
  });

  test('there is always an isolation mode, the strongest first', () => {
    expect(available.length).toBeGreaterThan(0);
    expect(ISOLATION_MODES.filter((isolation) => available.includes(isolation))).toEqual(available);
  });
});

test.skipIf(!available.includes('bubblewrap'))(
  'bubblewrap lets programs write in the workspace and nowhere else',
  async () => {
    const root = temporaryFolder();
    const outside = temporaryFolder();
    const processes = processesOf({ root, sandbox: 'bubblewrap' });
    const script = `echo x > inside; echo x > ${outside}/escaped; echo x > /etc/escaped; echo done`;
    const result = await processes.run({ argv: ['sh', '-c', script] });
    expect(result.stdout).toBe('done\n');
    expect(readdirSync(root)).toEqual(['inside']);
    expect(readdirSync(outside)).toEqual([]);
    expect(readdirSync('/etc')).not.toContain('escaped');
  },
);

test.skipIf(!available.includes('keeper'))(
  'when the tree kills its own supervisor, the worker ends the remaining processes',
  async () => {
    const token = uniqueSleep();
    const script = `setsid sleep ${token} >/dev/null 2>&1 & kill -9 $PPID; sleep ${token}`;
    const result = await processesOf({ sandbox: 'keeper' }).run({ argv: ['sh', '-c', script] });
    expect(result.signal).toBe('SIGKILL');
    await eventually(() => processesWith(token).length === 0, { what: 'the end of the tree' });
  },
);
