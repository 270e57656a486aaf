import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { processesWith } from '../../../examples/demo/processes.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { startPawl, startScript, type TestProcess } from '../../helpers/process.ts';
import { eventually } from '../../helpers/signal.ts';

/** The demo with variables of its environment replaced. */
const CHANGED_DEMO = new URL('../fixtures/demo.ts', import.meta.url);
const DEMO_MS = 180_000;

interface Started {
  readonly demo: TestProcess;
  /** Fails unless files, folders, processes and servers of this run are all gone. */
  expectNothingLeft(): Promise<void>;
}

/** Starts the demo in a pipe, with temporary and current folders of its own. */
function startDemo({ flags = [], replaced }: { flags?: readonly string[]; replaced?: object } = {}): Started {
  const root = temporaryFolder();
  const [temp, current] = [join(root, 't'), join(root, 'c')];
  mkdirSync(temp);
  mkdirSync(current);
  const options = {
    cwd: current,
    // The demo has its own Redis, whatever the user has configured.
    env: { TMPDIR: temp, REDIS_URL: 'redis://127.0.0.1:1', PAWL_DATA_DIR: join(current, 'data'), NO_COLOR: undefined },
  };
  const demo =
    replaced === undefined
      ? startPawl(['demo', ...flags], options)
      : startScript(CHANGED_DEMO, [JSON.stringify(replaced)], options);
  const expectNothingLeft = async () => {
    // The embedded Redis removes its folder when the last process that uses it has ended.
    await eventually(async () => (await processesWith(root)).length === 0, { what: 'an end of all processes' });
    expect(readdirSync(temp)).toEqual([]);
    expect(readdirSync(current)).toEqual([]);
  };
  return { demo, expectNothingLeft };
}

function linesOfJson(demo: TestProcess): readonly Readonly<Record<string, unknown>>[] {
  return demo
    .stdout()
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

test('the demo prints plain lines, exits 0 and leaves no files or processes', { timeout: DEMO_MS }, async () => {
  const { demo, expectNothingLeft } = startDemo();
  expect(await demo.ended, demo.stdout() + demo.stderr()).toEqual({ code: 0, signal: null });

  const text = demo.stdout();
  expect(text).not.toContain('\u001b');
  expect(text).toMatch(/shell +ok .* exit code 1: /);
  expect(text).toMatch(/shell +ok .* exit code 0: mended/);
  expect(text).toMatch(/send_invoice ok, same .* caller B, same key, same time/);
  expect(text).toMatch(/send_invoice refused .* same key, other amount/);
  expect(text).toMatch(/fetch_price +ok +\d>\d>\d +3 .* answered 503 twice/);
  expect(text).toMatch(/check_stock +refused .* refused at once/);
  expect(text).toMatch(/check_stock +ok .* the circuit is closed/);
  expect(text).toMatch(/kill -9 \d+: worker \d is gone/);
  expect(text).toMatch(/sync_index +ok +\d>\d +2 .* another worker ran it again/);
  expect(text).toMatch(/send_invoice unknown .* OUTCOME_UNKNOWN, no second run/);
  expect(text).toMatch(/send_invoice ok, same .* succeeded, as resolved/);
  expect(text).toMatch(/shell +cancelled .* none is left/);
  expect(text).toContain('21 calls');
  expect(text).toContain('3 files changed, 2 invoices sent and 5 documents indexed, each once.');
  expect(text).toContain('5 duplicates prevented, 4 retries, 2 workers killed.');
  expect(demo.stderr()).toBe('');
  await expectNothingLeft();
});

test('with --json each call is one line; an interruption ends the demo early and cleanly', {
  timeout: DEMO_MS,
  tags: ['slow'],
}, async () => {
  const { demo, expectNothingLeft } = startDemo({ flags: ['--json'] });
  await demo.line('"type":"call"');
  demo.signal('SIGINT');
  expect(await demo.ended).toEqual({ code: 130, signal: null });

  const lines = linesOfJson(demo);
  expect(lines[0]).toMatchObject({ type: 'call', tool: 'write', asExpected: true, status: 'success', attempts: 1 });
  expect(lines.at(-1)).toEqual({ type: 'summary', ended: 'interrupted', exitCode: 130 });
  await expectNothingLeft();
});

test('a reader that ends early ends the demo, which leaves nothing behind', {
  timeout: DEMO_MS,
  tags: ['slow'],
}, async () => {
  const { demo, expectNothingLeft } = startDemo({ flags: ['--json'] });
  await demo.line('"type":"call"');
  demo.closeOutput();
  expect(await demo.ended).toEqual({ code: 130, signal: null });
  await expectNothingLeft();
});

test('a call with an unexpected end is shown with the expected and the actual result: exit 1', {
  tags: 'slow',
}, async () => {
  // Workers whose temporary folder does not exist cannot run programs.
  const { demo, expectNothingLeft } = startDemo({ replaced: { TMPDIR: '/nowhere/at/all' } });
  expect((await demo.ended).code).toBe(1);

  expect(demo.stdout()).toMatch(/shell +WRONG/);
  expect(demo.stdout()).toMatch(/expected +a success\n +came +error \(/);
  expect(demo.stdout()).not.toContain('ended as it should:');
  await expectNothingLeft();
});
