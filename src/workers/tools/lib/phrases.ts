/** Phrases for people, and truncation marks for models. */
import type { ProcessResult } from '../../../shared/tools/capabilities.ts';
import { withEllipsis } from '../../../shared/util/text/text-cut.ts';

const MAX_LENGTH = 120;

export function clipped(text: string): string {
  return withEllipsis(text, MAX_LENGTH);
}

/** Writes line ends and control characters as escapes. */
export function oneLine(text: string): string {
  return clipped(JSON.stringify(text));
}

/** Adds a mark where the end of an output is missing. */
export function markTruncated(text: string, droppedBytes: number): string {
  return droppedBytes === 0 ? text : `${text}\n[truncated: ${droppedBytes} more bytes]\n`;
}

export function describeExit(
  { timedOut, signal, exitCode }: Pick<ProcessResult, 'timedOut' | 'signal' | 'exitCode'>,
  timeLimitMs: number,
): string {
  if (timedOut) return `killed at its time limit of ${timeLimitMs} ms`;
  return signal === null ? `exit code ${exitCode}` : `ended by ${signal}`;
}
