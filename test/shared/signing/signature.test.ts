import { expect, test } from 'vitest';
import { Signer } from '../../../src/shared/signing/signature.ts';

const OLD = { kid: 'one', key: 'the key that came before' };

test.each([
  { kid: 'two', key: 'the key that came after it' },
  { kid: 'one', key: 'one of the same name' },
])('the first key signs and all verify, while one is changed for $key', (fresh) => {
  const steps = [[OLD], [OLD, fresh], [fresh, OLD], [fresh]].map((keys) => new Signer(keys));
  const verified = steps.map((signer) => steps.map((other) => other.verify(signer.sign('a', 'b'), 'a', 'b')));
  expect(verified).toEqual([
    [true, true, true, false],
    [true, true, true, false],
    [false, true, true, true],
    [false, true, true, true],
  ]);
});

test('nothing else verifies: other parts, another key, a signature that is none', () => {
  const signer = new Signer([OLD]);
  const signature = signer.sign('a', 'b');
  expect(signer.verify(signature, 'ab')).toBe(false);
  for (const other of ['', ':', 'one:', `two${signature.slice(3)}`, `${signature}x`, signature.slice(0, -1)])
    expect(signer.verify(other, 'a', 'b')).toBe(false);
});
