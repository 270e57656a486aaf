import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { TestProcess } from '../../helpers/process.ts';
import { eventually } from '../../helpers/signal.ts';
import { type CliFixture, openPlace } from '../pawl.ts';

const KEYS = { PAWL_SIGNING_KEYS: 'one:a key of this test only' };

let place: CliFixture;
let up: TestProcess;
beforeAll(async () => {
  place = await openPlace();
  up = place.start(['up', '--port', '0', '--workers', '1', '--tools', 'tools.ts', '--json'], KEYS);
  await up.line('"event":"ready"');
});
afterAll(async () => {
  up.signal('SIGKILL');
  await up.ended;
  await place[Symbol.asyncDispose]();
});

const verify = async (...args: string[]) => {
  const { code, stdout } = await place.run(['audit', 'verify', '--json', ...args], { env: KEYS });
  return { code, ...(JSON.parse(stdout) as { intact: boolean; trails: { records: number; faults: object[] }[] }) };
};

test('I4: records that come while verify reads the files are no other end of the trail', async () => {
  const call = () => place.run(['call', 'greet', '--params', '{"name":"Eve"}', '--session', 'live'], { env: KEYS });
  const folder = join(place.folder, '.pawl', 'audit');
  const written = (lines: number) =>
    eventually(
      () => {
        const name = readdirSync(folder).find((each) => each.endsWith('.jsonl'));
        const text = name === undefined ? '' : readFileSync(join(folder, name), 'utf8');
        return name !== undefined && text.split('\n').length > lines && { name, text };
      },
      { what: `${lines} records in a file` },
    );
  expect((await call()).code).toBe(0);
  const { name } = await written(2);
  // A file that is read as slowly as this test likes.
  const slow = join(place.folder, 'slow');
  mkdirSync(slow);
  execFileSync('mkfifo', [join(slow, name)]);
  const verified = verify('--folder', slow);
  const file = await open(join(slow, name), 'w');
  expect((await call()).code).toBe(0);
  await file.writeFile((await written(4)).text);
  await file.close();
  expect(await verified).toMatchObject({ code: 0, intact: true, trails: [{ faults: [] }] });
});

test('I4: pawl audit lists calls, and verify finds changes in its files', async () => {
  for (const name of ['Ada', 'Bob']) {
    const call = ['call', 'greet', '--params', JSON.stringify({ name }), '--session', 'trip'];
    expect((await place.run(call, { env: KEYS })).code).toBe(0);
  }
  const listed = await place.run(['audit', '--session', 'trip'], { env: KEYS });
  expect(listed).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/call +tools\.greet +trip[\s\S]*attempt +tools\.greet/),
  });
  const wrong = await place.run(['audit', 'ls', '--since', 'yesterday'], { env: KEYS });
  expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('2026-11-22T10:00:00Z') });

  const folder = join(place.folder, '.pawl', 'audit');
  const file = await eventually(
    () => {
      const name = readdirSync(folder).find((each) => each.endsWith('.jsonl'));
      const path = join(folder, name ?? '');
      return name !== undefined && readFileSync(path, 'utf8').split('\n').length >= 5 && path;
    },
    { what: 'four records in a file' },
  );
  expect(await verify()).toMatchObject({ code: 0, intact: true, trails: [{ faults: [] }] });

  up.signal('SIGTERM');
  await up.ended;
  const whole = readFileSync(file, 'utf8');
  const lines = whole.trimEnd().split('\n');
  writeFileSync(file, whole.replace('"actorId":"', '"actorId":"not-'));
  const edited = await place.run(['audit', 'verify'], { env: KEYS });
  expect(edited).toMatchObject({ code: 1, stdout: expect.stringContaining('does not match its hash') });
  writeFileSync(file, `${lines.toSpliced(1, 1).join('\n')}\n`);
  expect(await verify()).toMatchObject({ code: 1, trails: [{ faults: [{ kind: 'missing', from: 2, to: 2 }] }] });
  writeFileSync(file, `${lines.slice(0, -1).join('\n')}\n`);
  expect((await verify()).trails[0]?.faults).toContainEqual({
    kind: 'truncated',
    from: lines.length,
    to: lines.length,
  });
  writeFileSync(file, whole);
  expect(await verify()).toMatchObject({ code: 0, intact: true });
});

test('I4: verify --from checks the rest of a trail, whatever is still there of what went before', async () => {
  const folder = join(place.folder, '.pawl', 'audit');
  const name = readdirSync(folder).find((each) => each.endsWith('.jsonl')) ?? '';
  const lines = readFileSync(join(folder, name), 'utf8').trimEnd().split('\n');
  const parts = join(place.folder, 'parts');
  mkdirSync(parts);
  const part = (first: number) => join(parts, name.replace(/\d{16}/, String(first).padStart(16, '0')));
  const write = (first: number, end: number) =>
    writeFileSync(part(first), `${lines.slice(first - 1, end).join('\n')}\n`);
  const faultsFrom = async (from: number) =>
    (await verify('--folder', parts, '--from', String(from))).trails.flatMap(({ faults }) => faults);
  write(1, 2);
  write(3, lines.length);
  for (const from of [1, 2, 3, 4]) expect(await faultsFrom(from), `all files, from ${from}`).toEqual([]);
  rmSync(part(1));
  for (const from of [3, 4]) expect(await faultsFrom(from), `the second file, from ${from}`).toEqual([]);
  expect(await faultsFrom(2)).toEqual([{ kind: 'missing', from: 2, to: 2 }]);
  mkdirSync(part(1));
  expect(await faultsFrom(1), 'a folder in the place of the first file').toEqual([{ kind: 'missing', from: 1, to: 2 }]);
});

test('an override is listed with its subject, its reason and its user', async () => {
  const env = { ...KEYS, USER: 'somebody-else' };
  const reason = ['--reason', 'maintenance'];
  expect((await place.run(['circuits', 'force-open', 'greet', ...reason], { env })).code).toBe(0);
  const listed = await place.run(['audit', 'ls', '--type', 'override'], { env });
  expect(listed.stdout).toMatch(/cli:(?!somebody-else)\S+ +circuit force_open tool:tools\.greet \(maintenance\)/);
  expect(await place.run(['audit', 'ls', '--type', 'overrides'], { env })).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('call-ended, override'),
  });
});

test('I4: half a line at the end of a file, as after a crash, is no fault', async () => {
  const folder = join(place.folder, '.pawl', 'audit');
  const file = join(folder, readdirSync(folder).find((each) => each.endsWith('.jsonl')) ?? '');
  const whole = readFileSync(file, 'utf8');
  appendFileSync(file, whole.slice(0, 40));
  expect(await verify()).toMatchObject({ code: 0, intact: true });
  // A record that was written whole is missed all the same.
  writeFileSync(file, whole.slice(0, -20));
  expect(await verify()).toMatchObject({ code: 1, trails: [{ faults: [{ kind: 'truncated' }] }] });
});

test('a named folder without files of the trail is refused, because it would always count as intact', async () => {
  const wrong = await place.run(['audit', 'verify', '--folder', join(place.folder, 'mistyped')], { env: KEYS });
  expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('holds no files of an audit trail') });
});

test('files that cannot be read are named, without a stack', async () => {
  const wrong = await place.run(['audit', 'verify', '--folder', join(place.folder, 'tools.ts')], { env: KEYS });
  expect(wrong).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/^pawl: The files in .* cannot be read: .*\n$/),
  });
});
