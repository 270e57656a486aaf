import { describe, expect, test } from 'vitest';
import {
  ChainCheck,
  type ChainedRecord,
  chainRecords,
  faultText,
  formatChainedRecord,
  parseChainedRecord,
  type TrailHead,
} from '../../../src/shared/audit/audit-chain.ts';
import { AuditFormatter } from '../../../src/shared/audit/audit-record.ts';
import { Signer } from '../../../src/shared/signing/signature.ts';
import { Signatures } from '../../../src/shared/signing/signatures.ts';
import { ChainSignatures } from '../../../src/shared/store/audit/chain-signatures.ts';

const RECORDS = 10_000;
const START: TrailHead = { trail: '0123456789abcdef01', seq: 0, seal: '0123456789abcdef01' };
const chained = (signer?: Signer) => new ChainSignatures(new Signatures(signer));
const keyed = chained(new Signer([{ kid: 'one', key: 'a key of this test only' }]));

/** A trail as a fleet makes it: calls, attempts and overrides of several sessions. */
function generated(sealing: ChainSignatures, records = RECORDS): readonly ChainedRecord[] {
  const texts = Array.from({ length: records }, (_, index) => {
    const call = { callId: `w0.${index}`, tool: 'tools.write', sessionKey: `s${index % 7}`, tenantId: 'acme' };
    const id = `p.${index}`;
    if (index % 50 === 0)
      return new AuditFormatter([]).format({ type: 'override', what: 'flush', action: 'all', by: 'ada' }, index, id);
    return new AuditFormatter([]).format(
      { ...call, type: 'call-ended', status: 'success', attempts: 1, worker: 'w' },
      index,
      id,
    );
  });
  return chainRecords(START, texts, sealing);
}

function headOf(trail: readonly ChainedRecord[], seq: number): TrailHead {
  return seq === 0 ? START : { trail: START.trail, seq, seal: trail[seq - 1]?.seal ?? '' };
}

/** What is found in lines that stand behind a head, and should end at another one. */
function faultsIn(lines: readonly string[], sealing: ChainSignatures, from: TrailHead, to: TrailHead) {
  const check = new ChainCheck(sealing, from);
  for (const line of lines) check.addLine(line);
  return check.end(to).faults;
}

/** The line with one character of it changed. */
function changed(line: string, at: number): string {
  const other = line[at] === '0' ? '1' : '0';
  return line.slice(0, at) + other + line.slice(at + 1);
}

describe.each([
  ['under the fleet’s key', keyed],
  ['without keys', chained()],
])('I4: a trail chained %s', (_how, sealing) => {
  const trail = generated(sealing);
  const lines = trail.map(formatChainedRecord);
  const end = headOf(trail, RECORDS);

  test('is found intact as it was written, and a line is the record byte for byte', () => {
    expect(faultsIn(lines, sealing, START, end)).toEqual([]);
    expect(parseChainedRecord(lines[4_711] ?? '')).toEqual(trail[4_711]);
  });

  test('every single-record mutation of its 10,000 is found: edited, removed, repeated, moved, another’s put in', () => {
    const missed: string[] = [];
    for (let at = 0; at < RECORDS; at += 1) {
      // What stands before is intact, so that the check comes to the record in the state that the head before it says; what stands
      // two behind it cannot undo what was found.
      const before = headOf(trail, at);
      const upTo = Math.min(at + 3, RECORDS);
      const after = headOf(trail, upTo);
      const [line = '', ...rest] = lines.slice(at, upTo);
      const [next, ...others] = rest;
      const mutations: Record<string, readonly string[]> = {
        edited: [changed(line, 8 + ((at * 31) % (line.length - 8))), ...rest],
        removed: rest,
        repeated: [line, line, ...rest],
        emptied: ['{}', ...rest],
        moved: next === undefined ? [] : [next, line, ...others],
        replaced: [
          formatChainedRecord({ ...(trail[at] as ChainedRecord), text: trail[(at + 60) % RECORDS]?.text ?? '' }),
          ...rest,
        ],
      };
      for (const [what, mutated] of Object.entries(mutations))
        if (faultsIn(mutated, sealing, before, after).length === 0) missed.push(`${what} ${at + 1}`);
    }
    expect(missed).toEqual([]);
  });

  test('a mutation is found in the whole trail, too, and named', () => {
    for (const at of [0, 1, 4_999, RECORDS - 2, RECORDS - 1]) {
      const edited = lines.with(at, (lines[at] ?? '').replace(/"atMs":\d+/, '"atMs":7777777'));
      expect(faultsIn(edited, sealing, START, end)).toEqual([{ kind: 'edited', seq: at + 1 }]);
      const removed = lines.toSpliced(at, 1);
      const gone = at === RECORDS - 1 ? 'truncated' : 'missing';
      expect(faultsIn(removed, sealing, START, end)).toContainEqual({ kind: gone, from: at + 1, to: at + 1 });
    }
  });

  test('a trail that is cut off anywhere is reported as truncated', () => {
    for (const kept of [0, 1, 5_000, RECORDS - 1]) {
      const faults = faultsIn(lines.slice(0, kept), sealing, START, end);
      expect(faults).toEqual([{ kind: 'truncated', from: kept + 1, to: RECORDS }]);
      expect(faults.map(faultText)).toEqual([expect.stringMatching(/missing at the end$/)]);
    }
  });

  test('the head exposes an end that was rewritten', () => {
    const forged = chainRecords(headOf(trail, 9_990), ['{"id":"x","atMs":1}'], sealing).map(formatChainedRecord);
    expect(faultsIn([...lines.slice(0, 9_990), ...forged], sealing, START, headOf(trail, 9_991))).toEqual([
      { kind: 'other-end', seq: 9_991 },
    ]);
  });
});

test('a chain without the key does not verify, and a record verifies only in its own trail', () => {
  const trail = generated(keyed, 3);
  const forged = chainRecords(headOf(trail, 1), ['{"id":"x","atMs":1}', '{"id":"y","atMs":2}'], chained());
  const lines = [trail[0] as ChainedRecord, ...forged].map(formatChainedRecord);
  expect(faultsIn(lines, keyed, START, headOf(trail, 3))).toContainEqual({
    kind: 'other-key',
    key: '',
    from: 2,
    to: 3,
  });
  const elsewhere = { ...START, seal: 'fedcba987654321001' };
  expect(faultsIn(trail.map(formatChainedRecord), keyed, elsewhere, headOf(trail, 3))).toEqual([
    { kind: 'edited', seq: 1 },
  ]);
});

test('records chained with an unknown key are reported together, apart from edited ones', () => {
  const signer = { kid: 'two', key: 'the key that came after it' };
  const old = generated(keyed, 20);
  const head = headOf(old, 20);
  const trail = [
    ...old,
    ...chainRecords(head, ['{"id":"x","atMs":1}', '{"id":"y","atMs":2}'], chained(new Signer([signer]))),
  ];
  const lines = trail.map(formatChainedRecord);
  const end = headOf(trail, 22);
  const later = faultsIn(lines, chained(new Signer([signer])), START, end);
  expect(later).toEqual([{ kind: 'other-key', key: 'one', from: 1, to: 20 }]);
  expect(later.map(faultText)).toEqual([
    'records 1 to 20 are chained with the key "one", which is not in PAWL_SIGNING_KEYS of this process',
  ]);
  expect(faultsIn(lines, chained(), START, end)).toMatchObject([{ key: 'one' }, { key: 'two', from: 21, to: 22 }]);
  const both = chained(new Signer([signer, { kid: 'one', key: 'a key of this test only' }]));
  expect(faultsIn(lines, both, START, end)).toEqual([]);
  const edited = lines.with(4, (lines[4] ?? '').replace('"atMs":4', '"atMs":7'));
  expect(faultsIn(edited, both, START, end)).toEqual([{ kind: 'edited', seq: 5 }]);
});

test('archived records are not missed when the check starts after them', () => {
  const trail = generated(keyed, 100);
  const check = new ChainCheck(keyed, { seq: 40, seal: undefined });
  for (const record of trail.slice(40)) check.add(record);
  expect(check.end(headOf(trail, 100))).toEqual({ records: 60, first: 41, last: 100, faults: [] });
});
