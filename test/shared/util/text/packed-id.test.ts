import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { packId, unpackId } from '../../../../src/shared/util/text/packed-id.ts';

test('an identifier that is a UUID, or begins with one, is shorter, and comes back as it was', () => {
  expect(packId('0199f0c0-1111-7222-8333-44445555ffff')).toBe('~AZnwwBERciKDM0REVVX__w');
  for (const rest of ['', '-17', '~', ' é'])
    for (let round = 0; round < 50; round += 1) {
      const id = randomUUID() + rest;
      expect(packId(id)).toHaveLength(23 + rest.length);
      expect(unpackId(packId(id))).toBe(id);
    }
});

test.each(['', 'k123', '~', '~~', '~AZnwwBERciKDM0REVVVmZg', '0199F0C0-1111-7222-8333-444455556666', '0199f0c0-1111'])(
  'any other identifier comes back as it was: %j',
  (id) => {
    expect(unpackId(packId(id))).toBe(id);
  },
);

test('a packed text that is too short for a UUID is no UUID of another call', () => {
  expect(unpackId('~abc')).toBe('~abc');
});
