import type { CompletionTerms } from '../../shared/calls/completion.ts';
import type { Attempt } from './attempt-state.ts';

/** The limits and the schema that a completion of the attempt's call must meet. */
export function termsOf({ tool, policy }: Pick<Attempt, 'tool' | 'policy'>): CompletionTerms {
  const shownBytes = policy.maxOutputBytes ?? tool.maxOutputBytes;
  return {
    ...(tool.outputSchema !== undefined && { outputSchema: tool.outputSchema }),
    maxResultBytes: policy.maxResultBytes ?? tool.maxResultBytes,
    ...(shownBytes !== undefined && { shownBytes }),
  };
}
