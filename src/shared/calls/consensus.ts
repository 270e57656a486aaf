/**
 * Consensus: several workers must come to the same result.
 *
 * The runs are attempts of one call, each by a worker that has not answered yet. Each run leaves the digest of its result, its vote.
 * Results themselves are not kept: the worker that settles the call has run it, and is of the majority.
 */

export interface Vote {
  readonly worker: string;
  readonly digest: string;
}

export type Tally =
  /** Votes are missing, or a worker of the majority must run the call again to deliver the result. */
  { readonly kind: 'open' } | { readonly kind: 'agreed' } | { readonly kind: 'split' };

/** The newest vote of each worker, in the present round of the call. */
export function votesOf(
  attempts: readonly { readonly worker: string; readonly vote?: string; readonly round?: number }[],
): readonly Vote[] {
  const newest = new Map<string, string>();
  for (const { worker, vote, round } of attempts)
    if (vote !== undefined && round === undefined) newest.set(worker, vote);
  return [...newest].map(([worker, digest]) => ({ worker, digest }));
}

/** Whether a run on this worker could add a missing vote, or deliver the majority's result. */
export function mayVote(votes: readonly Vote[], worker: string, voters: number): boolean {
  const ownVote = votes.find((vote) => vote.worker === worker);
  if (ownVote === undefined) return votes.length < voters;
  return votes.length >= voters && ownVote.digest === majorityOf(votes, voters);
}

/** The state of the vote after a run. */
export function tally(votes: readonly Vote[], ownVote: Vote, voters: number): Tally {
  const all = [...votes.filter(({ worker }) => worker !== ownVote.worker), ownVote];
  if (all.length < voters) return { kind: 'open' };
  const majority = majorityOf(all, voters);
  if (majority === undefined) return { kind: 'split' };
  return { kind: majority === ownVote.digest ? 'agreed' : 'open' };
}

function majorityOf(votes: readonly Vote[], voters: number): string | undefined {
  return votes.find(({ digest }) => 2 * votes.filter((vote) => vote.digest === digest).length > voters)?.digest;
}
