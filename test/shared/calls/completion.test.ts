import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import {
  completionToken,
  parseCompletion,
  readCompletionToken,
  resultFromOutside,
  TOKEN_BYTES,
} from '../../../src/shared/calls/completion.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { redact } from '../../../src/shared/errors/redaction.ts';

function thrown(run: () => unknown): PawlError {
  try {
    run();
  } catch (error) {
    return error as PawlError;
  }
  throw new Error('nothing was thrown');
}

describe('a completion', () => {
  test.each([
    { completion: undefined, path: 'status' },
    { completion: {}, path: 'status' },
    { completion: { status: 'maybe' }, path: 'status' },
    { completion: { status: 'success', output: 1, more: 1 }, path: '' },
    { completion: { status: 'error', error: { code: 'no code', message: 'x' } }, path: 'error.code' },
    { completion: { status: 'error', error: { code: 'POISONED', message: 'x' } }, path: 'error.code' },
    { completion: { status: 'error', error: { code: 'A', message: '' } }, path: 'error.message' },
    { completion: { progress: 'half' }, path: 'progress' },
    { completion: { progress: { progress: 1, total: 'two' } }, path: 'progress.total' },
    { completion: { extendMs: 0 }, path: 'extendMs' },
    { completion: { extendMs: 1.5 }, path: 'extendMs' },
    { completion: { extendMs: 366 * 24 * 3_600_000 }, path: 'extendMs' },
  ])('of the form $completion is refused with its path', ({ completion, path }) => {
    const refused = thrown(() => parseCompletion(completion));
    expect(refused).toBeInstanceOf(PawlError);
    expect(refused).toMatchObject({ code: 'CONTRACT_INVALID', issues: [{ path }] });
  });

  test('reads progress as a number or as an object, and an absent output as null', () => {
    const report = { progress: 1, total: 2, message: 'half' };
    expect(parseCompletion(report)).toEqual({ kind: 'progress', report });
    expect(parseCompletion({ progress: report })).toEqual({ kind: 'progress', report });
    expect(parseCompletion({ status: 'success' })).toEqual({ kind: 'end', end: { status: 'success', output: null } });
  });
});

describe('a completion token', () => {
  const callId = `s12.${'a'.repeat(43)}`;

  test('names its partition and nothing else of its call, and is redacted', () => {
    const token = completionToken(callId, Buffer.alloc(TOKEN_BYTES, 7));
    expect(readCompletionToken(token).partition).toEqual({ tier: 'system', shard: 12 });
    expect(token).not.toContain('a'.repeat(43));
    expect(redact(`posted to ${token}, once`)).toBe('posted to [redacted], once');
  });

  test.each(['', 'nonsense', 'pawlc_', 'pawlc_s0.short', callId])('%j is none', (token) => {
    expect(thrown(() => readCompletionToken(token)).code).toBe('UNKNOWN_COMPLETION');
  });
});

test('an output schema is compiled once for the completions of its tool', async () => {
  const compile = vi.spyOn(Ajv2020.prototype, 'compile');
  onTestFinished(() => compile.mockRestore());
  const complete = (output: unknown) =>
    resultFromOutside('t', { outputSchema: { type: 'integer', title: 'of this test' } }, { output });
  expect((await complete(1)).output).toBe(1);
  const compiled = compile.mock.calls.length;
  expect(compiled).toBeGreaterThan(0);
  await expect(complete('x')).rejects.toMatchObject({ code: 'COMPLETION_INVALID' });
  expect((await complete(2)).output).toBe(2);
  expect(compile).toHaveBeenCalledTimes(compiled);
});
