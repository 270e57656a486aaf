import { expect, test } from 'vitest';
import { expandNames, shortRecordText } from '../../../../src/shared/store/audit/stored-records.ts';

const record = {
  type: 'attempt',
  id: 'p.1',
  atMs: 5,
  tool: 'tools.read "a" \\ b',
  tenantId: undefined,
  reason: 'a line\nbreak, a \u0001 and half of \ud83d',
  result: '{"tool":"x","id":1}',
  issues: [{ path: 'a', status: 'b' }],
  nothing: null,
  yes: true,
};

test('a record with shortened names is shorter, and becomes its JSON again, byte for byte', () => {
  const text = shortRecordText(record);
  expect(text.length).toBeLessThan(JSON.stringify(record).length - 30);
  expect(expandNames(text)).toBe(JSON.stringify(record));
  expect(expandNames(shortRecordText({}))).toBe('{}');
  expect(expandNames(shortRecordText({ tool: undefined, tier: 'system', tool_2: 1 }))).toBe(
    '{"tier":"system","tool_2":1}',
  );
});
