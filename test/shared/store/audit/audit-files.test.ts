import { appendFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { ChainCheck, parseChainedRecord } from '../../../../src/shared/audit/audit-chain.ts';
import type { AuditEvent } from '../../../../src/shared/audit/audit-event.ts';
import { readLines, sinkName, trailFiles } from '../../../../src/shared/store/audit/audit-files.ts';
import { temporaryFolder } from '../../../helpers/context.ts';
import { faultsOf, openTrail, override, sealing, toTheEnd } from '../trails.ts';

test('I4: what processes write at the same time becomes one chain, in Redis and in files that rotate', async () => {
  const { writer, sealer, trail, sink } = await openTrail();
  const folder = temporaryFolder();
  const writers = [writer(), writer(), writer()];
  for (let number = 0; number < 900; number += 1) void writers[number % 3]?.record(override(number));
  await Promise.all(writers.map((each) => each.close()));
  const [one, other] = [sealer(), sealer()];
  // At most one of two who seal at the same time does.
  await Promise.all([toTheEnd(one), toTheEnd(other)]);
  await toTheEnd(one);
  expect(await trail.head()).toMatchObject({ seq: 900 });
  const { files, gaps } = sink(folder, 20_000);
  await toTheEnd(files);
  await files.release();
  const found = await faultsOf(folder, trail);
  expect(found).toMatchObject({ records: 900, first: 1, last: 900, faults: [] });
  expect(found.files).toBe(1);
  expect(gaps).toEqual([]);
  // The next record opens the next file.
  const late = writer();
  void late.record(override(900));
  await late.close();
  await toTheEnd(one);
  await toTheEnd(files);
  expect(await faultsOf(folder, trail)).toMatchObject({ files: 2, records: 901, faults: [] });
  await files.release();
});

test('a crash in the middle of a line, and another process in the same folder, leave a whole trail', async () => {
  const { writer, sealer, trail, sink } = await openTrail();
  const folder = temporaryFolder();
  const from = writer();
  const add = async (numbers: readonly number[]) => {
    for (const number of numbers) void from.record(override(number));
    await from.written();
    await toTheEnd(sealing1);
  };
  const sealing1 = sealer();
  await add([0, 1, 2]);
  const first = sink(folder).files;
  await toTheEnd(first);
  await first.release();
  const [name = ''] = readdirSync(folder);
  appendFileSync(join(folder, name), '{"seq":4,"record":{"id"');
  await add([3, 4]);
  const second = sink(folder).files;
  await toTheEnd(second);
  // Stands still while its lease passes to another one.
  await second.release();
  await add([5]);
  const third = sink(folder).files;
  await toTheEnd(third);
  await third.release();
  await add([6]);
  await toTheEnd(second);
  await second.release();
  expect(await faultsOf(folder, trail)).toMatchObject({ records: 7, faults: [] });
});

test('I4: line separators in what callers say leave the trail readable, and who goes on in its file finds its end', async () => {
  const { writer, sealer, trail, sink } = await openTrail();
  const folder = temporaryFolder();
  const [told, one] = [writer(), sealer()];
  const said = async (number: number) => {
    await told.record({ ...override(number), reason: 'one\u2028two\u2029three' } as AuditEvent);
    await toTheEnd(one);
    const { files } = sink(folder);
    await toTheEnd(files);
    await files.release();
  };
  await said(1);
  expect(await faultsOf(folder, trail)).toMatchObject({ records: 1, faults: [] });
  // As of a folder that was copied elsewhere: its last line alone says where it ends.
  await trail.setPosition(sinkName(folder), { trail: 'another', seq: 0 });
  await said(2);
  expect(await faultsOf(folder, trail)).toMatchObject({ files: 1, records: 2, last: 2, faults: [] });
  await told.close();
});

test('while one has a folder, another one does not write there', async () => {
  const { writer, sealer, trail, sink } = await openTrail();
  const folder = temporaryFolder();
  const from = writer();
  void from.record(override(0));
  await from.close();
  await toTheEnd(sealer());
  const [one, other] = [sink(folder).files, sink(folder).files];
  await Promise.all([toTheEnd(one), toTheEnd(other)]);
  await toTheEnd(other);
  expect(await faultsOf(folder, trail)).toMatchObject({ records: 1, faults: [] });
  expect((await trail.positions()).get(sinkName(folder))).toMatchObject({ seq: 1 });
  await one.release();
  await other.release();
});

test('Redis keeps the newest records and those that are in no file yet; a gap in the files is reported', async () => {
  const { writer, sealer, trail, sink } = await openTrail();
  const folder = temporaryFolder();
  const from = writer();
  const keeper = sealer(100);
  const add = async (count: number) => {
    for (let number = 0; number < count; number += 1) {
      void from.record(override(number));
      if (number % 50 === 49) await from.written();
    }
    await from.written();
    await toTheEnd(keeper);
  };
  const { files, gaps } = sink(folder);
  await add(50);
  await toTheEnd(files);
  await add(300);
  const head = await trail.head();
  const oldest = async () => (await trail.recordsFrom(head?.trail ?? '', 0))[0]?.seq;
  expect(await oldest()).toBeLessThanOrEqual(51);
  await toTheEnd(files);
  expect(await faultsOf(folder, trail)).toMatchObject({ records: 350, faults: [] });
  await files.release();
  // Nobody copies for long: Redis does not grow without end.
  for (let times = 0; times < 10; times += 1) await add(200);
  expect(await oldest()).toBeGreaterThan(351);
  await toTheEnd(files);
  await files.release();
  expect(gaps).toMatchObject([{ from: 351 }]);
  expect((await faultsOf(folder, trail)).faults).toMatchObject([{ kind: 'missing', from: 351 }]);
});

test('files that cannot be written are reported once until they can be again, each try is counted, and no record is missing then', async () => {
  const { writer, sealer, trail, sink } = await openTrail();
  const folder = join(temporaryFolder(), 'audit');
  writeFileSync(folder, 'no folder');
  const own = writer();
  onTestFinished(() => own.close());
  const { files, faults, failures } = sink(folder);
  onTestFinished(() => files.release());
  const one = sealer();
  for (const number of [1, 2]) {
    await own.record(override(number));
    await toTheEnd(one);
    await expect(files.step()).rejects.toThrow();
  }
  expect(faults).toEqual([expect.objectContaining({ path: folder })]);
  expect(failures.value).toBe(2);
  rmSync(folder);
  await toTheEnd(files);
  expect(await faultsOf(folder, trail)).toMatchObject({ files: 1, last: 2, faults: [] });
  rmSync(folder, { recursive: true });
  writeFileSync(folder, 'no folder');
  expect(failures.value).toBe(2);
  await expect(files.step()).rejects.toThrow();
  expect(faults).toHaveLength(2);
  expect(failures.value).toBe(3);
});

/** A trail whose records are sealed as they are added, and files that follow it when asked. */
async function openSigned() {
  const { redis, keys, writer, sealer, trail, sink } = await openTrail();
  const folder = temporaryFolder();
  const from = writer();
  const keeper = sealer();
  const add = async (number: number) => {
    void from.record(override(number));
    await from.written();
    await toTheEnd(keeper);
  };
  return { redis, keys, keeper, trail, folder, files: sink(folder).files, add };
}

test('a Redis that came back with less than the files have begins another trail: no number is used twice', async () => {
  const { redis, keys, trail, folder, files, add } = await openSigned();
  await add(0);
  const before = await trail.head();
  await add(1);
  await toTheEnd(files);
  // As a Redis that lost its last second has it.
  await redis.hset(keys.head, { seq: String(before?.seq), seal: before?.seal ?? '' });
  await redis.xdel(keys.chain(before?.trail ?? ''), '2-0');
  await toTheEnd(files);
  expect((await trail.head())?.trail).not.toBe(before?.trail);
  await add(2);
  await toTheEnd(files);
  await files.release();
  expect((await trailFiles(folder)).length).toBe(2);
  expect(await faultsOf(folder, trail)).toMatchObject({ records: 1, faults: [] });
});

test('I4: records that a Redis without its last second chains before the files are read still reach the files', async () => {
  // Fewer than it lost, as many, and more.
  for (const sealedSince of [1, 2, 4]) {
    const { redis, keys, keeper, trail, folder, files, add } = await openSigned();
    await add(0);
    const before = await trail.head();
    const chain = keys.chain(before?.trail ?? '');
    const chainBefore = await redis.dumpBuffer(chain);
    await add(1);
    await add(2);
    await toTheEnd(files);
    await redis.hset(keys.head, { seq: String(before?.seq), seal: before?.seal ?? '' });
    await redis.restore(chain, 0, chainBefore, 'REPLACE');
    for (let number = 3; number < 3 + sealedSince; number += 1) await add(number);
    await toTheEnd(files);
    await toTheEnd(keeper);
    await toTheEnd(files);
    await files.release();
    const written: unknown[] = [];
    for (const { trail: id, files: paths } of await trailFiles(folder)) {
      const check = new ChainCheck(sealing, { seq: 0, seal: id });
      for await (const line of readLines(paths)) {
        check.addLine(line);
        written.push(JSON.parse(line).record.action);
      }
      expect(check.end().faults).toEqual([]);
    }
    expect(written.sort()).toEqual(Array.from({ length: 3 + sealedSince }, (_, number) => `number ${number}`));
  }
});

test('an edited file does not verify, and the one who writes it goes on behind it', async () => {
  const { writer, sealer, trail, sink } = await openTrail();
  const folder = temporaryFolder();
  const from = writer();
  const keeper = sealer();
  const { files } = sink(folder);
  for (let number = 0; number < 3; number += 1) void from.record(override(number));
  await from.written();
  await toTheEnd(keeper);
  await toTheEnd(files);
  const file = join(folder, readdirSync(folder)[0] ?? '');
  const lines = readFileSync(file, 'utf8').trim().split('\n');
  expect(parseChainedRecord(lines[1] ?? '')?.seq).toBe(2);
  writeFileSync(file, `${lines.with(1, (lines[1] ?? '').replace('number 1', 'nothing')).join('\n')}\n`);
  void from.record(override(3));
  await from.written();
  await toTheEnd(keeper);
  await toTheEnd(files);
  await files.release();
  expect((await faultsOf(folder, trail)).faults).toEqual([{ kind: 'edited', seq: 2 }]);
});
