import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { envelopeOf } from '../../../src/shared/calls/outcome.ts';
import { normalizeResult, resultMetadata } from '../../../src/shared/tools/tool-result.ts';
import { capOutput } from '../../../src/shared/util/text/truncate-output.ts';

const cyclic = {
  child: {},
  fail: () => {
    throw new Error('failed');
  },
};
cyclic.child = { parent: cyclic };

/** A cycle that is longer than those that are searched for. */
const endless: { of?: unknown } = {};
endless.of = Array.from({ length: 99 }).reduce((of) => ({ of }), endless);

class Self {
  readonly mean = 0 / 0;

  toJSON(): this {
    return this;
  }
}

const nested = (value: unknown, depth: number): unknown => (depth === 0 ? value : { of: nested(value, depth - 1) });

describe('A12: one place checks results and brings them into their form', () => {
  test('D2: every known kind of content is kept, and unknown members are dropped', () => {
    const content = [
      { type: 'text', text: 'a' },
      { type: 'image', data: 'AA==', mimeType: 'image/png' },
      { type: 'audio', data: 'AA==', mimeType: 'audio/wav' },
      { type: 'resource', uri: 'file:///a' },
    ];
    const result = { output: undefined, display: 'a\ud800', artifacts: [], content, success: false, tainted: true };
    expect(normalizeResult('t', { ...result, secret: 1 })).toEqual({ ...result, output: null, display: 'a\ufffd' });
  });

  test.each<[string, unknown, string]>([
    ['no object', 7, 'it returned number'],
    ['null', null, 'it returned null'],
    [
      'no output',
      { weather: 'fair' },
      'must return { output, display?, artifacts? }; it returned an object without output.',
    ],
    ['a list', [1], 'it returned a list.'],
    ['an output that is a function', { output: () => 1 }, 'must return a JSON-serializable value as output'],
    ['an output that was not awaited', { output: Promise.resolve(1) }, 'as output; it returned Promise'],
    ['an output that is a map', { output: new Map([[1, 2]]) }, 'as output; it returned Map'],
    ['an output that is a set', { output: new Set([1]) }, 'as output; it returned Set'],
    ['a map in an output', { output: { rows: [{ by: new Map() }] } }, 'it returned Map in output.rows[0].by.'],
    ['a set in an output', { output: [1, new Set([1])] }, 'it returned Set in output[1].'],
    ['a promise in an output', { output: { 'a b': Promise.resolve(1) } }, 'it returned Promise in output["a b"].'],
    [
      'an error in an output',
      { output: { error: new TypeError('x') } },
      'returned TypeError (its message would be lost) in',
    ],
    [
      'a response',
      { output: { of: new Response('x') } },
      'returned Response without members that JSON knows in output.of',
    ],
    [
      'headers',
      { output: [new Headers({ a: 'b' })] },
      'it returned Headers without members that JSON knows in output[0]',
    ],
    ['a pattern', { output: { by: /x/ } }, 'it returned RegExp without members that JSON knows in output.by'],
    ['an instance that keeps all to itself', { output: new (class Own {})() }, 'it returned Own without members'],
    ['bytes', { output: new Uint8Array(2) }, 'it returned Uint8Array (bytes go into content or a file)'],
    ['a buffer of bytes', { output: { of: new ArrayBuffer(2) } }, 'it returned ArrayBuffer (bytes go into content'],
    ['a BigInt', { output: 1n }, 'as output; it returned bigint.'],
    ['a BigInt in an output', { output: { total: [1n] } }, 'it returned bigint in output.total[0].'],
    [
      'an output that holds itself',
      { output: cyclic },
      'it returned a value that holds itself in output.child.parent.',
    ],
    ['an output that writes nothing', { output: { toJSON: () => undefined } }, 'whose toJSON returns undefined.'],
    ['an output that throws', { output: { toJSON: () => cyclic.fail() } }, 'it returned one that throws: failed.'],
    ['no number', { output: 0 / 0 }, 'as output; it returned NaN.'],
    ['a mean of nothing', { output: { mean: 0 / 0 } }, 'it returned NaN in output.mean.'],
    ['an endless number in a list', { output: [{ max: [1, Infinity] }] }, 'it returned Infinity in output[0].max[1].'],
    ['the least number', { output: { min: -Infinity } }, 'it returned -Infinity in output.min.'],
    ['no number in an object of its own', { output: [Object(Number.NaN)] }, 'it returned NaN in output[0].'],
    ['no number that an object writes', { output: { n: { toJSON: () => ({ of: 0 / 0 }) } } }, 'NaN in output.n.of.'],
    ['no number that an instance writes', { output: [new Self()] }, 'it returned NaN in output[0].mean.'],
    ['a function that an object writes', { output: [{ toJSON: () => () => 1 }] }, 'it returned function in output[0].'],
    [
      'numbers that write themselves',
      { output: Object.assign(new Float64Array(1), { toJSON: () => [0 / 0] }) },
      'NaN in',
    ],
    ['an endless cycle', { output: endless }, 'it returned a value more than 1000 levels deep in output.of.of.'],
    ...['Object(NaN)', 'new Date(NaN)', 'new Map([[1, 2]])', 'Object.assign(new Error("x"), { code: 1 })'].map(
      (code): [string, unknown, string] => [
        `${code} of another realm`,
        { output: { of: runInNewContext(code) } },
        'in output.of.',
      ],
    ),
    ['no number in a block', { output: 1, content: [{ type: 'text', text: 'a', at: 0 / 0 }] }, 'NaN in content[0].at.'],
    [
      'no number in an artifact',
      { output: 1, artifacts: [{ kind: 'other', reference: 'a', at: 1n }] },
      'bigint in art',
    ],
    ['a function in a list', { output: { rows: [1, () => 1] } }, 'it returned function in output.rows[1].'],
    ['a symbol in a list', { output: [Symbol('a')] }, 'it returned symbol in output[0].'],
    ['no number at a great depth', { output: nested(0 / 0, 90) }, 'it returned NaN in output.of.of.'],
    ['a date that is none', { output: { at: new Date('never') } }, 'it returned Invalid Date in output.at.'],
    ['display', { output: 1, display: 7 }, 'a text as display'],
    ['artifacts', { output: 1, artifacts: {} }, 'a list as artifacts'],
    ['an artifact', { output: 1, artifacts: [{ kind: 'x' }] }, 'as artifacts[0]'],
    ['content', { output: 1, content: 'text' }, 'a list as content'],
    ['a block', { output: 1, content: [{ type: 'video' }] }, 'as content[0]'],
    ['success', { output: 1, success: 'no' }, 'true or false as success'],
    ['tainted', { output: 1, tainted: 1 }, 'true or false as tainted'],
  ])('%s is refused with a sentence', (_name, value, sentence) => {
    expect(normalizeResult('t', value)).toContain(sentence);
  });

  test('JSON’s numbers are accepted, and others are refused with their path', () => {
    fc.assert(
      fc.property(fc.double(), fc.constantFrom('a', 'b c', '__proto__'), (number, name) => {
        const output = Object.fromEntries([[name, [number]]]);
        const result = normalizeResult('t', { output });
        if (Number.isFinite(number)) expect(result).toEqual({ output });
        else expect(result).toMatch(new RegExp(`it returned ${number} in output(\\.|\\[").+\\[0\\]\\.$`));
      }),
    );
  });

  test('every text of a result is well-formed, and one that was stays the same', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.integer({ min: 0, max: 20 }), (text, at) => {
        const cut = text.slice(0, at);
        const content = [
          { type: 'text', text: cut },
          { type: 'resource', uri: cut, text: cut },
        ] as const;
        const artifacts = [{ kind: 'other', reference: cut }] as const;
        const result = normalizeResult('t', { output: { [cut]: [{ of: cut }] }, display: cut, content, artifacts });
        const whole = cut.toWellFormed();
        expect(result).toEqual({
          output: { [whole]: [{ of: whole }] },
          display: whole,
          content: [
            { type: 'text', text: whole },
            { type: 'resource', uri: whole, text: whole },
          ],
          artifacts: [{ kind: 'other', reference: whole }],
        });
      }),
    );
    expect(normalizeResult('t', { output: [Object('a\ud800')] })).toEqual({ output: ['a\ufffd'] });
    const output = { list: [1, { of: '😀' }] };
    expect(normalizeResult('t', { output })).toEqual({ output });
    expect((normalizeResult('t', { output }) as { output: unknown }).output).toBe(output);
  });

  test('values with toJSON, values shared without a cycle, and members that JSON leaves out are accepted', () => {
    const shared = { at: new Date(0) };
    const map = Object.assign(new Map(), { toJSON: () => [] });
    const output = { one: shared, two: [shared, shared], map, bytes: Buffer.from('a'), run: () => 1, none: undefined };
    expect(normalizeResult('t', { output })).toEqual({ output });
  });

  test('instances with members, empty objects of any realm and boxed values count as their JSON', () => {
    class Point {
      x = 1;
    }
    const output = {
      at: new Point(),
      none: {},
      bare: Object.create(null),
      far: runInNewContext('({})'),
      n: Object(1),
    };
    expect(normalizeResult('t', { output })).toEqual({ output });
  });

  test('C15: a soft failure, taint and a diff are members beside the content', () => {
    const none = { outside: false, diff: '' };
    expect(resultMetadata({ output: 1 }, none)).toEqual({});
    expect(resultMetadata({ output: 1, success: true, tainted: false }, { outside: true, diff: '' })).toEqual({});
    expect(resultMetadata({ output: 1, success: false }, { outside: true, diff: '--- a' })).toEqual({
      success: false,
      tainted: true,
      diff: '--- a',
    });
  });
});

describe('A12: an output that is too large for a model is cut, with a mark and a handle to the whole', () => {
  test('text, lists and objects keep their shape', () => {
    const href = '/v1/calls/c/output';
    const mark = (bytes: number) => `… [cut: 10 of ${bytes} bytes are shown; the whole is at ${href}]`;
    expect(capOutput('ä'.repeat(10), 11, 'c').content).toMatch(/^ä{5}… \[cut: 11 of 20/);
    expect(capOutput('short', 10, 'c')).toEqual({ content: 'short' });
    expect(capOutput('x'.repeat(99), undefined, 'c')).toEqual({ content: 'x'.repeat(99) });
    const cut = capOutput({ lines: ['a'.repeat(40), 'b'], total: 2 }, 10, 'c');
    expect(cut.content).toEqual({ lines: [mark(68)] });
    expect(cut.whole).toMatchObject({ bytes: 68, href });
    expect(capOutput([1, 2, 3, 4, 5, 6, 7], 10, 'c').content).toEqual([1, 2, 3, 4, 5, mark(15)]);
  });

  test('escaped characters count as JSON writes them, and no character is cut in two', () => {
    const { content, whole } = capOutput({ t: '\u001b'.repeat(9_000) }, 10_000, 'c');
    expect(JSON.stringify(content).split('\\u001b').length - 1).toBe(1_665);
    expect(whole?.shownBytes).toBeLessThan(10_000 + 100);
    expect(capOutput({ t: '"'.repeat(900) }, 48, 'c').content).toEqual({ t: expect.stringMatching(/^"{20}… \[cut/) });
    expect(capOutput(['😀'.repeat(9)], 15, 'c').content).toEqual([expect.stringMatching(/^😀{2}… \[cut/u)]);
    expect(capOutput(Array(900).fill(''), 1_000, 'c').whole?.shownBytes).toBeLessThan(1_000 + 100);
  });

  test('a member of any name stays', () => {
    const content = JSON.parse('{"__proto__":{"a":1},"b":"a long text that is cut"}') as unknown;
    const shown = JSON.stringify(capOutput(content, 28, 'c').content);
    expect(shown).toMatch(/^\{"__proto__":\{"a":1\},"b":"… \[cut/);
  });

  test('the shown part of any output is small and marked once', () => {
    fc.assert(
      fc.property(
        fc.jsonValue({ maxDepth: 5, stringUnit: 'binary' }),
        fc.integer({ min: 1, max: 200 }),
        (content, maxBytes) => {
          const { content: shown, whole } = capOutput(content, maxBytes, 'c');
          const text = typeof shown === 'string' ? shown : JSON.stringify(shown);
          if (whole === undefined) {
            expect(shown).toEqual(content);
            return;
          }
          expect(text.split('[cut: ').length).toBe(2);
          expect(whole.bytes).toBeGreaterThan(maxBytes);
        },
      ),
    );
  });

  test('the record holds the whole, each envelope the part', () => {
    const outcome = {
      status: 'success',
      toolName: 't',
      durationMs: 1,
      attempts: 1,
      shownBytes: 4,
      output: { content: 'abcdefgh', metadata: { display: 'letters' } },
    } as const;
    const { output } = envelopeOf(outcome, { requestId: 'r', toolName: 't', callId: 'c' });
    expect(output?.content).toMatch(/^abcd… \[cut/);
    expect(output?.metadata).toMatchObject({ display: 'letters', whole: { bytes: 8, href: '/v1/calls/c/output' } });
  });
});
