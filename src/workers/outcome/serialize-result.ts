/** Turns the result of an attempt into the outcome of its call and the outcome's JSON. */
import { type Outcome, outcomeText } from '../../shared/calls/outcome.ts';
import { classify } from '../../shared/errors/classify-error.ts';
import { failureOf } from '../../shared/errors/failure.ts';
import { resultMetadata, type ToolResult } from '../../shared/tools/tool-result.ts';
import type { LargeText } from '../../shared/util/json/large-json.ts';
import type { AttemptResult } from '../attempt/attempt-result.ts';
import { type Attempt, outcomeBase } from '../attempt/attempt-state.ts';

/** A tool's result, with the outcome of its call and the outcome's text. */
export interface SerializedSuccess {
  readonly kind: 'value';
  readonly result: ToolResult<unknown>;
  readonly outcome: Outcome;
  readonly outcomeJson: string | LargeText;
}

/** The result of an attempt, which can be stored. */
export type SerializedResult = Exclude<AttemptResult, { readonly kind: 'value' }> | SerializedSuccess;

/** A result that is not JSON-serializable or too large is a failure of its tool. `diff` has the call's changes to files. */
export async function serializeResult(
  attempt: Attempt,
  result: AttemptResult,
  diff: string,
): Promise<SerializedResult> {
  if (result.kind !== 'value') return result;
  const { tool, policy } = attempt;
  const outcome = successOutcome(attempt, result.result, diff);
  const maxBytes = policy.maxResultBytes ?? tool.maxResultBytes;
  try {
    const text = outcomeText(outcome, maxBytes);
    const outcomeJson = text instanceof Promise ? await text : text;
    if (outcomeJson !== undefined) return { kind: 'value', result: result.result, outcome, outcomeJson };
  } catch (error) {
    const message = `The output of ${tool.name} is not JSON-serializable: ${classify(error).message}`;
    return { kind: 'failure', failure: failureOf('RESULT_INVALID', message) };
  }
  const message = `The result of ${tool.name} is larger than the ${maxBytes} bytes that are allowed.`;
  return { kind: 'failure', failure: failureOf('RESULT_TOO_LARGE', message) };
}

function successOutcome(attempt: Attempt, result: ToolResult<unknown>, diff: string): Outcome {
  const { tool, policy } = attempt;
  const metadata = resultMetadata(result, { outside: tool.annotations.openWorldHint === true, diff });
  const shownBytes = policy.maxOutputBytes ?? tool.maxOutputBytes;
  return {
    ...outcomeBase(attempt),
    status: 'success',
    attempts: attempt.number,
    output: { content: result.output ?? null, ...(Object.keys(metadata).length === 0 ? {} : { metadata }) },
    ...(shownBytes !== undefined && { shownBytes }),
  };
}
