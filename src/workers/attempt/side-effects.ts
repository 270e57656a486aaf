/**
 * Counts the side effects of an attempt through its handles. A failure proves that nothing happened for one step only. An attempt
 * with another step, finished or running, may have had its effect.
 */
import { asToolError, classify } from '../../shared/errors/classify-error.ts';
import { ToolError } from '../../shared/errors/failure.ts';

export interface SideEffectTracker {
  /** The number of steps that changed something, may have, or still run. */
  sideEffects: number;
}

/** Runs a step and counts it as a side effect, unless its end proves that it changed nothing. */
export async function trackSideEffect<T>(
  attempt: SideEffectTracker,
  step: () => Promise<T>,
  changedNothing: (result: T) => boolean = () => false,
): Promise<T> {
  attempt.sideEffects += 1;
  try {
    const result = await step();
    if (changedNothing(result)) attempt.sideEffects -= 1;
    return result;
  } catch (error) {
    if (!classify(error).nothingHappened) throw error;
    attempt.sideEffects -= 1;
    // A `ToolError` of a handle covers this step alone, and must not look like one of the tool.
    throw attempt.sideEffects > 0 && error instanceof ToolError ? asToolError(error, false) : error;
  }
}
