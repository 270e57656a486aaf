/**
 * Trust classes (I11): whether one run's result is good enough, or several workers have to come to the same one.
 *
 * The runs of a call that needs a consensus are attempts of that one call, each by a worker that has not answered yet, and each leaves
 * the digest of what it found: its vote. Results themselves are not kept: whoever ends the call has run it, and agrees.
 */

export interface Vote {
  readonly worker: string;
  readonly digest: string;
}

export type Tally =
  /** Workers are missing, or one of the majority has to run the call again to say what the result is. */
  { readonly kind: 'open' } | { readonly kind: 'agreed' } | { readonly kind: 'split' };

/** The last word of each worker. */
export function votesOf(attempts: readonly { readonly worker: string; readonly vote?: string }[]): readonly Vote[] {
  const last = new Map<string, string>();
  for (const { worker, vote } of attempts) if (vote !== undefined) last.set(worker, vote);
  return [...last].map(([worker, digest]) => ({ worker, digest }));
}

/** Whether a worker's run would bring the call on. */
export function mayVote(votes: readonly Vote[], worker: string, voters: number): boolean {
  const own = votes.find((vote) => vote.worker === worker);
  if (own === undefined) return votes.length < voters;
  return votes.length >= voters && own.digest === majorityOf(votes, voters);
}

/** What follows from a run. */
export function tally(votes: readonly Vote[], own: Vote, voters: number): Tally {
  const all = [...votes.filter(({ worker }) => worker !== own.worker), own];
  if (all.length < voters) return { kind: 'open' };
  const majority = majorityOf(all, voters);
  if (majority === undefined) return { kind: 'split' };
  return { kind: majority === own.digest ? 'agreed' : 'open' };
}

function majorityOf(votes: readonly Vote[], voters: number): string | undefined {
  return votes.find(({ digest }) => 2 * votes.filter((vote) => vote.digest === digest).length > voters)?.digest;
}
