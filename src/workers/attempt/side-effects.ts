/**
 * The side effects of an attempt through its handles. A failure that proves that nothing happened proves it of one step. An attempt
 * that took another step, or is still at it, may have had its effect.
 */
import { asToolError, classify } from '../../shared/errors/classify-error.ts';
import { ToolError } from '../../shared/errors/failure.ts';

export interface SideEffectTracker {
  /** Steps that changed something, or may have, or still do. */
  sideEffects: number;
}

/** Takes a step that changes something, unless how it ended says that it has not. */
export async function trackSideEffect<T>(
  attempt: SideEffectTracker,
  act: () => Promise<T>,
  changedNothing: (done: T) => boolean = () => false,
): Promise<T> {
  attempt.sideEffects += 1;
  try {
    const done = await act();
    if (changedNothing(done)) attempt.sideEffects -= 1;
    return done;
  } catch (error) {
    if (!classify(error).nothingHappened) throw error;
    attempt.sideEffects -= 1;
    // A `ToolError` of a handle is about this step alone, and must not be taken for one of the tool.
    throw attempt.sideEffects > 0 && error instanceof ToolError ? asToolError(error, false) : error;
  }
}
