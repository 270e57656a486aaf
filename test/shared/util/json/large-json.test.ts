import { describe, expect, test } from 'vitest';
import { longOutcomeText } from '../../../../src/shared/calls/outcome.ts';
import { LargeTextWriter, largeTextOf, PART_BYTES, parseParts } from '../../../../src/shared/util/json/large-json.ts';

const MIB = 1_024 * 1_024;
const base = { status: 'success', toolName: 'note', durationMs: 5, attempts: 1 } as const;

/** Counts the turns of the event loop while something runs. */
async function turnsDuring<T>(work: () => Promise<T>): Promise<{ readonly turns: number; readonly made: T }> {
  let turns = 0;
  let counting: NodeJS.Immediate | undefined;
  const count = () => {
    turns += 1;
    counting = setImmediate(count);
  };
  counting = setImmediate(count);
  try {
    const made = await work();
    return { turns, made };
  } finally {
    clearImmediate(counting);
  }
}

describe('texts in parts', () => {
  test.each([PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES])('of %i bytes: no part is larger', (bytes) => {
    const { parts, bytes: counted } = largeTextOf('x'.repeat(bytes));
    expect(counted).toBe(bytes);
    expect(parts).toHaveLength(Math.ceil(bytes / PART_BYTES));
    expect(parts.slice(0, -1).every((part) => part.length === PART_BYTES)).toBe(true);
    expect(Buffer.concat(parts).length).toBe(bytes);
  });

  test.each<[string, unknown]>([
    ['one text', 'The quick brown fox.\n'.repeat((16 * MIB) / 22)],
    [
      'many records',
      Array.from({ length: 150_000 }, (_, index) => ({ index, name: `item ${index}`, tags: ['a', 'b'] })),
    ],
  ])(
    '16 MiB as %s: others have a turn between all parts, when it is made and when it is read',
    async (_what, content) => {
      const outcome = { ...base, output: { content } };
      const written = await turnsDuring(() => longOutcomeText(outcome, 32 * MIB));
      const parts = written.made?.parts ?? [];
      expect(parts.length).toBeGreaterThan(20);
      expect(written.turns).toBeGreaterThanOrEqual(parts.length - 1);
      const read = await turnsDuring(() => parseParts(parts));
      expect(read.turns).toBeGreaterThanOrEqual(parts.length - 1);
      expect(JSON.stringify(read.made) === JSON.stringify(outcome)).toBe(true);
    },
  );

  test('a long outcome records the place of its content', async () => {
    const content = ['é'.repeat(PART_BYTES), 1];
    const metadata = { display: 'x'.repeat(PART_BYTES) };
    for (const output of [{ content }, { content, metadata }, { content: null, metadata }]) {
      const made = await longOutcomeText({ ...base, output, shownBytes: 7 }, MIB);
      const text = Buffer.concat(made?.parts ?? []);
      const contentBytes = Buffer.byteLength(JSON.stringify(output.content));
      expect(JSON.parse(text.toString())).toEqual({ ...base, output, shownBytes: 7, contentBytes });
      expect(JSON.parse(text.subarray(...(made?.content ?? [])).toString())).toEqual(output.content);
    }
  });

  test('a text beyond its limit is written no further', async () => {
    const outcome = { ...base, output: { content: 'x'.repeat(4 * MIB) } };
    expect(await longOutcomeText(outcome, MIB)).toBeUndefined();
    const writer = new LargeTextWriter(MIB);
    await writer.addJson('x'.repeat(4 * MIB));
    expect(writer.bytes).toBeLessThanOrEqual(MIB + 2 * PART_BYTES);
    // The count is exact to the byte.
    const exact = (await longOutcomeText(outcome, 8 * MIB))?.bytes ?? 0;
    expect((await longOutcomeText(outcome, exact))?.bytes).toBe(exact);
    expect(await longOutcomeText(outcome, exact - 1)).toBeUndefined();
  });
});
