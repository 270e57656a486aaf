/** The demo's assertions. A failed one says what was expected and what came. */
import type { ToolResultEnvelope } from '../../src/shared/calls/envelope.ts';

export class Mismatch extends Error {
  override readonly name = 'Mismatch';
  readonly expected: string;
  readonly came: string;

  constructor(expected: string, came: string) {
    super(`expected ${expected}; came ${came}`);
    this.expected = expected;
    this.came = came;
  }
}

/** Compares as JSON. Throws a `Mismatch` that names `what`. */
export function expectEqual(what: string, came: unknown, expected: unknown): void {
  const [left, right] = [JSON.stringify(came), JSON.stringify(expected)];
  if (left !== right) throw new Mismatch(`${what} to be ${right}`, String(left));
}

/** The success of a result. Throws a `Mismatch` with the error otherwise. */
export function expectSuccess<Output>(
  result: ToolResultEnvelope<Output>,
): Extract<ToolResultEnvelope<Output>, { status: 'success' }> {
  if (result.status === 'success') return result;
  throw new Mismatch('a success', `${result.status} (${result.error.code}: ${result.error.message})`);
}

/** The error of a result, by its code. Throws a `Mismatch` otherwise. */
export function expectError(result: ToolResultEnvelope, code: string) {
  if (result.status === 'success')
    throw new Mismatch(`the error ${code}`, `a success: ${JSON.stringify(result.output.content)}`);
  if (result.error.code !== code)
    throw new Mismatch(`the error ${code}`, `${result.error.code}: ${result.error.message}`);
  return result.error;
}
