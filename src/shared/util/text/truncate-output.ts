/** Truncates a large output for a model to its beginning, a visible marker, and the address of the full output. */
import { startOf } from './text-cut.ts';

interface CutOutput {
  readonly content: unknown;
  /** Undefined when nothing was cut. */
  readonly whole?: { readonly bytes: number; readonly shownBytes: number; readonly href: string };
}

/** Keeps the shape of the output: long texts lose their end, lists and objects their last members. `jsonBytes` saves a count where it is known. */
export function capOutput(
  content: unknown,
  maxBytes: number | undefined,
  callId: string,
  jsonBytes?: number,
): CutOutput {
  if (maxBytes === undefined) return { content };
  const bytes = jsonBytes === undefined || typeof content === 'string' ? sizeOf(content) : jsonBytes;
  if (bytes <= maxBytes) return { content };
  const href = `/v1/calls/${callId}/output`;
  const marker = `… [cut: ${maxBytes} of ${bytes} bytes are shown; the whole is at ${href}]`;
  const budget = { bytes: maxBytes, marked: false };
  const result =
    typeof content === 'string' ? cutText(content, budget, marker, sizeOf) : truncateValue(content, budget, marker);
  // A number that is too long stays a number.
  if (!budget.marked) return { content };
  return { content: result, whole: { bytes, shownBytes: sizeOf(result), href } };
}

function sizeOf(value: unknown): number {
  return Buffer.byteLength(typeof value === 'string' ? value : (JSON.stringify(value) ?? ''));
}

interface CutBudget {
  bytes: number;
  marked: boolean;
}

function truncateValue(value: unknown, budget: CutBudget, marker: string): unknown {
  if (typeof value === 'string') return cutText(value, budget, marker, sizeInJson);
  if (typeof value !== 'object' || value === null) {
    budget.bytes -= sizeOf(value);
    return value;
  }
  // The two brackets, less one: each member counts a comma, and the last has none.
  budget.bytes -= Object.keys(value).length === 0 ? 2 : 1;
  if (Array.isArray(value)) {
    const result: unknown[] = [];
    for (const item of value) {
      if (budget.bytes <= 0) {
        if (!budget.marked) result.push(marker);
        budget.marked = true;
        break;
      }
      budget.bytes -= 1;
      result.push(truncateValue(item, budget, marker));
    }
    return result;
  }
  // Entries instead of an assignment, because a member may be called `__proto__`.
  const result: [string, unknown][] = [];
  for (const [name, member] of Object.entries(value)) {
    if (budget.bytes <= 0) {
      if (!budget.marked) result.push(['…', marker]);
      budget.marked = true;
      break;
    }
    budget.bytes -= sizeInJson(name) + 2;
    result.push([name, truncateValue(member, budget, marker)]);
  }
  return Object.fromEntries(result);
}

/** The size of a text in JSON, with its quotes and escapes. */
function sizeInJson(text: string): number {
  return Buffer.byteLength(JSON.stringify(text));
}

/** Cuts to the longest beginning of whole characters that fits. */
function cutText(text: string, budget: CutBudget, marker: string, sizeOfText: (text: string) => number): string {
  const bytes = sizeOfText(text);
  if (bytes <= budget.bytes) {
    budget.bytes -= bytes;
    return text;
  }
  let fittingLength = 0;
  // A unit takes a byte at least.
  let tooLongLength = Math.min(text.length, Math.max(0, budget.bytes)) + 1;
  while (tooLongLength - fittingLength > 1) {
    const length = (fittingLength + tooLongLength) >> 1;
    if (sizeOfText(text.slice(0, length)) <= budget.bytes) fittingLength = length;
    else tooLongLength = length;
  }
  budget.bytes = 0;
  budget.marked = true;
  return startOf(text, fittingLength) + marker;
}
