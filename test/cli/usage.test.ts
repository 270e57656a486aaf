import { execFileSync } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { CliContext } from '../../src/cli/context.ts';
import { EXIT_CODES, exitCodeOfError, exitCodeOfResult } from '../../src/cli/exit-codes.ts';
import { createProgram } from '../../src/cli.ts';
import type { ToolResultEnvelope } from '../../src/shared/calls/envelope.ts';
import { PawlError } from '../../src/shared/errors/failure.ts';
import { FAILURES, type FailureCode } from '../../src/shared/errors/failure-codes.ts';
import type { ResultStatus } from '../../src/shared/errors/result-status.ts';
import { startPawl, startProgram } from '../helpers/process.ts';
import { runInHost } from './pawl.ts';

const NOBODY = 'redis://127.0.0.1:1';

async function pawl(args: readonly string[], env: Readonly<Record<string, string>> = {}, cwd?: string) {
  const started = startPawl(args, { env, ...(cwd === undefined ? {} : { cwd }) });
  const { code } = await started.ended;
  return { code, stdout: started.stdout(), stderr: started.stderr() };
}

function temporaryFolder(): string {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'pawl-usage-')));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

describe('a person at the keyboard', () => {
  test.each([
    [['a\npawl: done']],
    [['call', 'read', '--timeout', 'a\npawl: done']],
    [['calls', 'ls', '--state', 'a\npawl: done']],
  ])('a line break in an argument begins no line of the message: %j', async (args) => {
    const { code, stderr } = await runInHost(args, {}, tmpdir());
    expect(code).toBe(2);
    expect(stderr).toMatch(/^pawl: .*a\\u\{A\}pawl: done.*\n'pawl.* --help' .*\n$/);
  });

  test('pawl alone prints its help', async () => {
    const { code, stdout } = await pawl([]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^Usage: pawl/);
    expect(stdout).toContain('doctor');
  });

  test.each([
    [['doctr'], 'unknown command', 'Did you mean doctor?'],
    [['calls', 'shwo', 'x'], 'unknown command', 'Did you mean show?'],
    [['call', 'read', '--parms', '{}'], 'unknown option', 'Did you mean --params?'],
    [['call', 'read', '{}'], 'too many arguments', "'pawl call --help' says what it takes"],
    [['calls', 'elephant'], 'unknown command', "'pawl calls --help' says what it takes"],
    [['calls', 'show'], 'missing required argument', "'pawl calls show --help' says what it takes"],
    [['elephant'], 'unknown command', "'pawl --help' lists the commands"],
  ])('a mistyped %j gets the nearest name, or leads to the help, and exit code 2', async (args, problem, hint) => {
    const { code, stdout, stderr } = await runInHost(args, {}, tmpdir());
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain(`pawl: ${problem}`);
    expect(stderr).toContain(hint);
    expect(stderr).not.toContain('    at ');
  });
});

test.each([
  ['up --workers', '100000', 'from 1 to 256'],
  ['up --workers', '0', 'from 1 to 256'],
  ['up --workers', '1e2', 'from 1 to 256'],
  ['mcp --workers', '257', 'from 0 to 256'],
  ['worker --concurrency', '10001', 'from 1 to 10000'],
  ['tools import-openapi x.json --concurrency', '-1', 'from 1 to 10000'],
  ['tools import-openapi x.json --per-second', '99999', 'from 1 to 10000'],
])('a count that no machine bears starts nothing: %s %s', async (line, count, bounds) => {
  expect(await outputOf([...line.split(' '), count])).toMatch(
    new RegExp(`^pawl: .*It must be a whole number ${bounds}\\.\n`),
  );
});

test('a Redis out of reach is reported in one line, without its password: exit code 7', { tags: 'slow' }, async () => {
  const env = { REDIS_URL: 'redis://:hidden@127.0.0.1:1' };
  for (const ended of await Promise.all(
    [['worker'], ['calls'], ['serve', '--port', '0']].map((args) => pawl(args, env)),
  )) {
    expect(ended.code).toBe(7);
    expect(ended.stderr).toMatch(/^pawl: Redis cannot be used: .*ECONNREFUSED.*pawl doctor.*\n$/);
    expect(ended.stderr).not.toContain('hidden');
  }
});

test('a failure to write the output is reported in one line: exit code 1', async () => {
  const launcher = fileURLToPath(new URL('../../bin/pawl.mjs', import.meta.url));
  const help = async (redirected: string) => {
    const shell = startProgram('sh', ['-c', `exec "$0" "$1" --help ${redirected}`, process.execPath, launcher]);
    return { code: (await shell.ended).code, stderr: shell.stderr() };
  };
  expect(await help('>/dev/full')).toEqual({
    code: 1,
    stderr: expect.stringMatching(/^pawl: The output cannot be written: ENOSPC.*\n$/),
  });
  expect(await help('>/dev/full 2>&1')).toEqual({ code: 1, stderr: '' });
});

test('a wrong address for Bull Board is named before anything starts: exit code 2', async () => {
  const wrong = ['redis://h?nosuch=1', 'http://h', 'rediss://h?ca=/nosuch.pem'];
  for (const url of wrong) {
    const env = { REDIS_URL: NOBODY, PAWL_BOARD_REDIS_URL: url };
    const { code, stdout, stderr } = await pawl(['serve', '--port', '0'], env);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/^pawl: [^\n]*PAWL_BOARD_REDIS_URL[^\n]*\n$/);
  }
});

test('a data folder that can be none is named as the setting at fault: exit code 2', async () => {
  const folder = temporaryFolder();
  const file = join(folder, 'file');
  const loop = join(folder, 'loop');
  writeFileSync(file, '');
  symlinkSync(loop, loop);
  for (const dataDir of [file, join(file, 'below'), join(loop, 'below'), join(folder, 'x'.repeat(300))]) {
    const { code, stdout, stderr } = await runInHost(['calls'], { REDIS_URL: '', PAWL_DATA_DIR: dataDir }, folder);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/^pawl: PAWL_DATA_DIR [^\n]*\n$/);
  }
});

test('a configuration file may begin with a byte order mark', async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'pawl.config.json'), `\uFEFF${JSON.stringify({ redisUrl: NOBODY })}`);
  const { code, stderr } = await runInHost(['calls'], { REDIS_URL: '' }, folder);
  expect(code).toBe(7);
  expect(stderr).toContain('ECONNREFUSED');
  expect(stderr).toContain(`(${NOBODY})`);
});

test('the Redis that a file names is reported without its password, too', { tags: 'slow' }, async () => {
  const folder = temporaryFolder();
  const file = join(folder, 'redis-url');
  writeFileSync(file, 'redis://ada:hid@den@127.0.0.1:1/2\n');
  const commands = [['calls'], ['worker'], ['serve', '--port', '0'], ['mcp', '--workers', '0']];
  const env = { REDIS_URL: '', REDIS_URL_FILE: file };
  for (const { code, stderr } of await Promise.all(commands.map((args) => pawl(args, env, folder)))) {
    expect({ code, stderr }).toEqual({ code: 7, stderr: expect.stringContaining('(redis://***@127.0.0.1:1/2)') });
    expect(stderr).not.toContain('den');
  }
});

describe('a configuration file that cannot be used is named in one line: exit code 2', () => {
  test.each([
    [
      'pawl.config.ts',
      'export default {\n  prefix: = 1,\n};\n',
      /cannot be used: SyntaxError: .* \(pawl\.config\.ts:2\)/,
    ],
    [
      'pawl.config.js',
      'export default {\n  prefix: = 1,\n};\n',
      /cannot be used: SyntaxError: .* \(pawl\.config\.js:2\)/,
    ],
    ['pawl.config.ts', "import 'no-such-package';\n", /cannot be used: Cannot find package 'no-such-package'/],
    ['pawl.config.mjs', "\nthrow new Error('no luck');\n", /cannot be used: no luck \(pawl\.config\.mjs:2\)/],
    ['pawl.config.cjs', "\nthrow new Error('no luck');\n", /cannot be used: no luck \(pawl\.config\.cjs:2\)/],
    ['pawl.config.yaml', 'prefix: shop\n', /is not read: write pawl\.config\.json or pawl\.config\.ts /],
    ['pawl.config.mjs', 'export const prefix = 1;\n', /has no default export: write export default/],
    ['pawl.config.ts', '', /has no default export: write export default/],
    ['pawl.config.ts', "const config = { prefix: 'shop' };\n", /has no default export: write export default/],
    ['pawl.config.ts', "export default Promise.reject(new Error('no luck'));\n", /: no luck \(pawl\.config\.ts:1\)/],
    ['pawl.config.ts', "export default { get prefix() { throw new Error('no luck'); } };\n", /: no luck \(pawl/],
  ])('%s: %j', (name, text, said) => expectNamed(runInHost, name, text, said));

  // Only the end of a process shows that nothing settles a promise.
  test.each([
    ['await new Promise(() => {});\n', /: its top level waits for a promise/],
    ['export default new Promise(() => {});\n', /waits for a promise that nothing settles/],
  ])('pawl.config.ts: %j', (text, said) => expectNamed(pawl, 'pawl.config.ts', text, said));

  async function expectNamed(run: typeof pawl | typeof runInHost, name: string, text: string, said: RegExp) {
    const folder = temporaryFolder();
    writeFileSync(join(folder, name), text);
    const { code, stdout, stderr } = await run(['calls'], { REDIS_URL: NOBODY }, folder);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr.split('\n')).toEqual([expect.stringMatching(said), '']);
    expect(stderr).toContain(`pawl: ${join(folder, name)} `);
  }
});

test.each([
  ['a link to nothing', (file: string) => symlinkSync('/no/such/file', file), /is a symbolic link to a file that does/],
  ['a FIFO', (file: string) => execFileSync('mkfifo', [file]), /is no regular file/],
])('a configuration file that is %s is not passed over', async (_what, make, said) => {
  const folder = temporaryFolder();
  for (const name of ['pawl.config.json', 'pawl.config.ts']) {
    make(join(folder, name));
    const { code, stderr } = await runInHost(['calls'], { REDIS_URL: NOBODY }, folder);
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringMatching(said) });
    rmSync(join(folder, name));
  }
});

/** All output of `pawl ARGS`, which starts nothing, without a process. */
async function outputOf(args: readonly string[]): Promise<string> {
  const out = new PassThrough();
  const context = { out, err: out } as unknown as CliContext;
  await createProgram(context, () => {})
    .parseAsync([...args], { from: 'user' })
    .catch(() => {});
  out.end();
  return text(out);
}

function leavesOf(command: Command, above = ''): readonly string[] {
  return command.commands.flatMap((child) => {
    const name = `${above}${child.name()}`;
    return child.commands.length === 0 ? [name] : leavesOf(child, `${name} `);
  });
}

describe('help', () => {
  const context = { out: new PassThrough(), err: new PassThrough() } as unknown as CliContext;
  const leaves = leavesOf(createProgram(context, () => {}));

  test('lists the commands of the interface and no others', () => {
    expect([...leaves].sort()).toEqual([
      ...[
        'approvals approve',
        'approvals deny',
        'approvals forget',
        'approvals ls',
        'approvals remembered',
        'approvals show',
      ],
      ...['audit ls', 'audit verify'],
      ...['call', 'callbacks ls', 'callbacks replay', 'callbacks secret'],
      ...['calls cancel', 'calls ls', 'calls resolve', 'calls show', 'calls watch'],
      ...[
        'circuits force-open',
        'circuits ls',
        'circuits reset',
        ...[
          'dead-letters discard',
          'dead-letters ls',
          'dead-letters redrive',
          'dead-letters redrives',
          'dead-letters stop',
        ],
        'demo',
        'doctor',
        'mcp',
        ...['plans cancel', 'plans ls', 'plans run', 'plans show'],
        'policy explain',
        ...['questions answer', 'questions dismiss', 'questions ls'],
        'reliability disable',
        'reliability enable',
        'reliability flush',
        'reliability ls',
        'schedules ls',
        'schedules pause',
        'schedules put',
        'schedules resume',
        'schedules rm',
        'schedules run',
        'schedules show',
        'serve',
      ],
      ...['sessions capture', 'sessions close', 'sessions ls', 'sessions open', 'sessions show', 'sessions state'],
      ...['shards ls', 'shards set'],
      ...[
        'tools add',
        'tools disable',
        'tools enable',
        'tools import-mcp',
        'tools import-openapi',
        'tools ls',
        'tools rm',
      ],
      ...['tools show', 'up', 'worker', 'workers drain', 'workers ls'],
    ]);
  });

  test.each(leaves.filter((name) => name !== 'mcp'))('of %s has an example and names --json', async (name) => {
    const help = await outputOf([...name.split(' '), '--help']);
    expect(help).toMatch(new RegExp(`Examples?:\n  pawl ${name}`));
    expect(help).toContain('--json');
  });
});

describe('exit codes', () => {
  test('are those of the interface', () => {
    expect(Object.values(EXIT_CODES).map(({ code, meaning }) => `${code} ${meaning}`)).toEqual([
      '0 success',
      '1 the call ended in an error',
      '2 wrong usage or configuration',
      '3 circuit open',
      '4 timeout',
      '5 denied',
      '6 outcome unknown',
      '7 Redis out of reach',
    ]);
  });

  const ended = (status: Exclude<ResultStatus, 'success'>, code: string, attempts: number): ToolResultEnvelope => ({
    requestId: '01a20089-c710-71d8-9c48-894f5ba70958',
    status,
    fromCache: false,
    toolName: 'greet',
    durationMs: 1,
    attempts,
    error: { code, message: code, retriable: false, terminal: true },
  });

  test.each<[Exclude<ResultStatus, 'success'>, string, number, number]>([
    ['error', 'TOOL_FAILED', 1, 1],
    ['error', 'BROKEN', 1, 1],
    ['retry_exhausted', 'HTTP_503', 4, 1],
    ['retry_exhausted', 'TIMEOUT', 4, 1],
    ['error', 'CANCELLED', 1, 1],
    ['error', 'INVALID_PARAMS', 1, 1],
    ['error', 'INVALID_PARAMS', 0, 2],
    ['error', 'UNKNOWN_TOOL', 0, 2],
    ['error', 'CONTRACT_INVALID', 0, 2],
    ['error', 'IDEMPOTENCY_CONFLICT', 0, 1],
    ['circuit_open', 'CIRCUIT_OPEN', 0, 3],
    ['timeout', 'TIMEOUT', 1, 4],
    ['timeout', 'DEADLINE_EXCEEDED', 0, 4],
    ['error', 'PERMISSION_DENIED', 0, 5],
    ['error', 'OUTCOME_UNKNOWN', 1, 6],
  ])('a call that ends as %s with %s after %i attempts gives %i', (status, code, attempts, exitCode) => {
    expect(exitCodeOfResult(ended(status, code, attempts))).toBe(exitCode);
  });

  test('every failure of a command has one', () => {
    const codes = Object.keys(FAILURES).map((code) => exitCodeOfError(new PawlError(code as FailureCode)));
    expect(codes.every((code) => code >= 1 && code <= 7)).toBe(true);
    expect(exitCodeOfError(new PawlError('CONFIGURATION'))).toBe(2);
    expect(exitCodeOfError(new PawlError('UNKNOWN_SESSION'))).toBe(2);
    expect(exitCodeOfError(new PawlError('CALL_NOT_RESOLVABLE'))).toBe(1);
    expect(exitCodeOfError(new PawlError('BACKEND_UNAVAILABLE'))).toBe(7);
  });
});
