import { expect, test } from 'vitest';
import { compareVersions, isCompatibleVersion } from '../../../src/shared/tools/versions.ts';

test.each([
  ['1.2.0', '1.2.0', true],
  ['1.3.0', '1.2.9', true],
  ['1.2.1', '1.2.0', true],
  ['1.2.0', '1.2.1', false],
  ['2.0.0', '1.9.9', false],
  ['1.0.0', '2.0.0', false],
  ['0.2.1', '0.2.0', true],
  ['0.3.0', '0.2.0', false],
  ['0.0.2', '0.0.1', false],
  ['1.0.0', '0.9.0', false],
  ['1.2.0', '1.2.0-beta.1', false],
  ['1.3.0-beta.1', '1.2.0', false],
  ['1.2.0-beta.1', '1.2.0-beta.1', true],
])('a tool of version %s runs calls that were validated against %s: %s', (version, validated, runs) => {
  expect(isCompatibleVersion(version, validated)).toBe(runs);
});

test('versions are ordered by their numbers, a pre-release before its release', () => {
  const sorted = ['1.10.0', '1.9.0', '1.9.0-rc.1', '0.1.0', '2.0.0'].sort(compareVersions);
  expect(sorted).toEqual(['0.1.0', '1.9.0-rc.1', '1.9.0', '1.10.0', '2.0.0']);
});
