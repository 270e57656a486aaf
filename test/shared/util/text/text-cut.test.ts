import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { modelContent } from '../../../../src/producer/adapters/model-content.ts';
import { circuitTarget } from '../../../../src/shared/circuits/circuit-key.ts';
import { failureOf } from '../../../../src/shared/errors/failure.ts';
import { PROVIDERS } from '../../../../src/shared/model-tools/export-types.ts';
import { toolsFor } from '../../../../src/shared/model-tools/tools-for.ts';
import { boundaryAt, endOf, startOf, wellFormed } from '../../../../src/shared/util/text/text-cut.ts';

const text = fc.string({ unit: 'binary', maxLength: 30 });

test('a beginning and an end are as long as allowed, of whole characters', () => {
  fc.assert(
    fc.property(text, fc.integer({ min: -1, max: 40 }), (whole, length) => {
      const [start, end] = [startOf(whole, length), endOf(whole, length)];
      expect([whole.startsWith(start), whole.endsWith(end)]).toEqual([true, true]);
      expect([start.isWellFormed(), end.isWellFormed()]).toEqual([true, true]);
      const allowed = Math.min(Math.max(0, length), whole.length);
      for (const part of [start, end]) expect([allowed, allowed - 1]).toContain(part.length);
      expect(whole.slice(boundaryAt(whole, allowed)).isWellFormed()).toBe(true);
    }),
    { numRuns: 1_000 },
  );
});

const nested = (value: unknown, depth: number): unknown => (depth === 0 ? value : { of: nested(value, depth - 1) });

test('a value is repaired at any depth, in names too, and one that needs no repair is the same', () => {
  const half = '\ud83d';
  const cases: [unknown, unknown][] = [
    [`a${half}`, 'a\ufffd'],
    [
      [1, [half]],
      [1, ['\ufffd']],
    ],
    [
      { [half]: { of: [half] }, other: Number.NaN },
      { '\ufffd': { of: ['\ufffd'] }, other: Number.NaN },
    ],
    [nested(half, 90), nested('\ufffd', 90)],
    [JSON.parse(`{"__proto__":"\\ud83d"}`), JSON.parse('{"__proto__":"\ufffd"}')],
  ];
  for (const [value, expected] of cases) expect(wellFormed(value)).toEqual(expected);
  for (const value of [null, 7, '😀', [Number.NaN, '😀'], { a: [new Date(0), undefined, new Uint8Array(1)] }])
    expect(wellFormed(value)).toBe(value);
});

test('a failure is well-formed, wherever it is cut and whatever it quotes', () => {
  for (let length = 1_990; length < 2_010; length += 1) {
    const issues = [{ path: '\ud83d', message: '\ud83d' }];
    const { message, issues: told } = failureOf('TOOL_FAILED', `${'x'.repeat(length)}${'😀'.repeat(2_000)}`, {
      issues,
    });
    expect(message.isWellFormed()).toBe(true);
    expect(told).toEqual([{ path: '\ufffd', message: '\ufffd' }]);
  }
});

test('the target of a circuit is whole characters', () => {
  expect(circuitTarget(`${'x'.repeat(259)}😀 y`)).toBe('x'.repeat(259));
});

test('results and tools are well-formed for a model, whatever a record holds', () => {
  const half = '\ud83d';
  const content = [
    { type: 'text', text: half },
    { type: 'resource', uri: half },
  ] as never;
  const envelope = {
    requestId: 'r',
    status: 'success',
    toolName: 't',
    durationMs: 0,
    attempts: 1,
    fromCache: false,
  } as const;
  const shown = modelContent({ ...envelope, output: { content: half, metadata: { content } } });
  expect(shown.map((part) => (part.type === 'text' ? part.text : ''))).toEqual(['\ufffd', '[\ufffd]']);
  const tool = {
    name: 't',
    namespace: 'tools',
    description: half,
    tier: 'read-only',
    effects: 'none',
    annotations: {},
    inputSchema: { type: 'object', properties: { a: { type: 'string', description: half, enum: [half] } } },
  } as const;
  for (const provider of PROVIDERS) expect(JSON.stringify(toolsFor(provider, [tool]).tools)).not.toMatch(/\\ud83d/);
});

/** The one that cuts, and one that cuts digits. */
const ALONE = ['shared/util/text/text-cut.ts', 'shared/util/text/packed-id.ts'];

test('no source cuts a text by itself where its characters may be of any kind', () => {
  const sources = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'));
  /** Cuts inside templates, where a mark behind the cut shows it, and of names that texts have, to a length. */
  const cut =
    /\$\{[^{}]*\.(?:slice|substring)\(0, [^)]*\)[^{}]*\}(?:…|… \[)|\b(?:value|text|message|id|[a-z]+Id|other|name|key|url|reason)(?:\.trim\(\))?\.(?:slice|substring)\(0, (?:\d+|[A-Z_]+_LENGTH)\)|JSON\.stringify\([^()]*\)[^;\n]*\.slice\(0, \d/;
  const found = sources.filter((path) => !ALONE.includes(path) && cut.test(readFileSync(join('src', path), 'utf8')));
  expect(found).toEqual([]);
});
