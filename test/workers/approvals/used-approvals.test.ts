/** The notes that a machine's workers keep of the approvals that were used. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { UsedApprovals } from '../../../src/workers/approvals/used-approvals.ts';

const NAME = 'call.1 ';
const first = { fence: 1, token: 'first', mayRepeat: false };
const next = { fence: 2, token: 'next', mayRepeat: false };

function open() {
  const dataDir = mkdtempSync(join(tmpdir(), 'pawl-used-'));
  const folder = join(dataDir, 'used-approvals');
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }));
  const noted = () => readdirSync(folder).map((file) => JSON.parse(readFileSync(join(folder, file), 'utf8')));
  const spoil = (text: string) => {
    for (const file of readdirSync(folder)) writeFileSync(join(folder, file), text);
  };
  return { dataDir, folder, used: new UsedApprovals(dataDir), noted, spoil };
}

describe('an attempt that is over', () => {
  test('lets another one follow, when it had used the approval and the call goes on', async () => {
    const { used, noted } = open();
    expect(await used.begin(NAME, first)).toBeUndefined();
    expect(await used.begin(NAME, next)).toBe('an attempt under it began and left no record');
    await used.end(NAME, { ...first, ended: false });
    expect(await used.begin(NAME, next)).toBeUndefined();
    expect(noted()).toEqual([{ state: 'running', fence: 2, token: 'next' }]);
  });

  test.each([true, false])(
    'frees nothing when it had not come to use it (the call ended before: %s)',
    async (ended) => {
      const { used, noted } = open();
      await used.begin(NAME, first);
      if (ended) await used.end(NAME, { ...first, ended });
      const before = noted();
      await used.end(NAME, { ...next, ended: false });
      expect(noted()).toEqual(before);
      expect(await used.begin(NAME, { ...next, fence: 3 })).toEqual(expect.any(String));
    },
  );

  test('that did not come to use it leaves no note of an unused approval', async () => {
    const { used, noted } = open();
    await used.end(NAME, { ...first, ended: false });
    expect(noted()).toEqual([]);
  });

  test('ends it in a folder that did not exist before, too', async () => {
    const { used } = open();
    await used.end(NAME, { ...first, ended: true });
    expect(await used.begin(NAME, next)).toBe('it was used already');
  });
});

test.each(['', '{"state":"free","fen', 'null', '{"state":"open","fence":1,"token":"x"}'])(
  'an unreadable note (%j) is one of an attempt that left no record',
  async (text) => {
    const { used, spoil } = open();
    await used.begin(NAME, first);
    spoil(text);
    expect(await used.begin(NAME, next)).toBe('an attempt under it began and left no record');
    await used.end(NAME, { ...next, ended: false });
    expect(await used.begin(NAME, { ...next, mayRepeat: true })).toBeUndefined();
    expect(await used.begin(NAME, { ...next, token: 'third', fence: 3 })).toBe(
      'an attempt under it began and left no record',
    );
  },
);

test('of several attempts at once one is first, and no file is left beside its note', async () => {
  const { used, folder } = open();
  const attempts = Array.from({ length: 8 }, (_, index) => ({ ...first, token: `attempt ${index}` }));
  const answers = await Promise.all(attempts.map((attempt) => used.begin(NAME, attempt)));
  expect(answers.filter((why) => why === undefined)).toHaveLength(1);
  expect(readdirSync(folder)).toHaveLength(1);
});

test('a folder that cannot be used is an error that names no path, and is tried again by the next call', async () => {
  const { dataDir, folder, used } = open();
  // In place of the folder: not even root can make one there.
  writeFileSync(folder, '');
  for (const note of [() => used.begin(NAME, first), () => used.end(NAME, { ...first, ended: true })]) {
    const error = await note().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(PawlError);
    expect(error).toMatchObject({ code: 'AUDIT_UNAVAILABLE', message: expect.not.stringContaining(dataDir) });
  }
  rmSync(folder);
  expect(await used.begin(NAME, first)).toBeUndefined();
  expect(existsSync(folder)).toBe(true);
  // Somebody tidied up while the worker ran.
  rmSync(folder, { recursive: true });
  await used.end(NAME, { ...first, ended: true });
  expect(await used.begin(NAME, next)).toBe('it was used already');
});
