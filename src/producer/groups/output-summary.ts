/** The beginning of what a call returned, for people who look at many calls. */
import type { Outcome } from '../../shared/calls/outcome.ts';
import { redact } from '../../shared/errors/redaction.ts';
import { startOf, withEllipsis } from '../../shared/util/text/text-cut.ts';
import { truncateJson } from '../../shared/util/text/truncate-json.ts';

/** Characters of a summary. */
const SUMMARY_LENGTH = 200;
/** So much of an output is looked at: secrets are removed before it is cut. */
const READ_LENGTH = 2_000;

/** The tool's own text, or else the output as JSON; without secrets, and cut. Undefined for a call without an output. */
export function outputSummary({ output }: Pick<Outcome, 'output'>): string | undefined {
  if (output === undefined) return undefined;
  const { content, metadata } = output;
  const display = metadata?.['display'];
  const text = display ?? content;
  const fullText = typeof text === 'string' ? text : (JSON.stringify(truncateJson(text, READ_LENGTH)) ?? '');
  return withEllipsis(redact(startOf(fullText, READ_LENGTH)), SUMMARY_LENGTH);
}
