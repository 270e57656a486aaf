/** Where an attempt meets the consensus that its tool needs (I11): who runs it, and what the runs come to. */

import { mayVote, type Tally, tally, type Vote, votesOf } from '../../shared/calls/consensus.ts';
import { type Failure, failureOf } from '../../shared/errors/failure.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import { needExcept } from '../../shared/store/dispatch/fetch-jobs.ts';
import type { AnyTool, ToolResult } from '../../shared/tools/tool.ts';
import { DEFAULT_VOTERS } from '../../shared/tools/trust-class.ts';
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';

export function needsConsensus({ trustClass }: Pick<AnyTool, 'trustClass'>): boolean {
  return trustClass === 'ConsensusRequired';
}

/** False: this worker has answered, and the call goes back unspent for another one. */
export function mayRunHere({ registered, started, workerId }: Attempt): boolean {
  return !needsConsensus(registered.tool) || mayVote(votesOf(started.earlier), workerId, votersOf(registered.tool));
}

export type Counted = Tally & { readonly vote: Vote; readonly votes: readonly Vote[] };

/** The attempt's time limit is over with its tool: whatever waits here for ever would keep its slot for ever. */
const NORMALISE_MS = 5_000;

/** The tool's own `normalise` says what of the output counts; it may throw whatever a tool may. */
export async function count(
  { registered: { tool }, started, workerId }: Attempt,
  result: ToolResult<unknown>,
  schedule: Schedule = systemSchedule,
): Promise<Counted> {
  const compared = tool.normalise === undefined ? result.output : await normalised(tool, result.output, schedule);
  // All would agree on nothing.
  if (compared === undefined) throw new TypeError(`normalise of ${tool.name} returned undefined`);
  const said = { output: compared, success: result.success !== false };
  const vote = { worker: workerId, digest: digest(canonicalJson(said)) };
  const votes = votesOf(started.earlier);
  return {
    ...tally(votes, vote, votersOf(tool)),
    vote,
    votes: [...votes.filter(({ worker }) => worker !== workerId), vote],
  };
}

async function normalised(tool: AnyTool, output: unknown, schedule: Schedule): Promise<unknown> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const message = `normalise of ${tool.name} did not end within ${NORMALISE_MS / 1_000} s`;
  const stopTimer = schedule(() => reject(new Error(message)), NORMALISE_MS);
  try {
    return await Promise.race([tool.normalise?.(output), late]);
  } finally {
    stopTimer();
  }
}

/** Who else may answer, of living workers that have the tool; undefined where that is nobody, or one that has answered already. */
export function nextVoters(
  { registered }: Attempt,
  votes: readonly Vote[],
  workers: readonly string[] = [],
): Extract<JobOutcome, { kind: 'skipped' }> | undefined {
  const voted = votes.map(({ worker }) => worker);
  const others = workers.filter((id) => !voted.includes(id));
  if (others.length === 0 || votes.length >= votersOf(registered.tool)) return undefined;
  return { kind: 'skipped', need: needExcept(voted), others };
}

/** Too few workers have answered, and nobody else comes. */
export function tooFew({ registered, started }: Attempt): Failure {
  const voters = votersOf(registered.tool);
  const votes = votesOf(started.earlier);
  return noConsensus(`${votes.length} of ${voters} workers answered, and no other one came`, votes);
}

export function split(votes: readonly Vote[]): Failure {
  const found = new Set(votes.map(({ digest }) => digest));
  return noConsensus(`${votes.length} workers found ${found.size} different results`, votes);
}

function noConsensus(why: string, votes: readonly Vote[]): Failure {
  const listed = votes.map(({ worker, digest }) => `${worker}: ${digest}`).join('; ');
  return failureOf('NO_CONSENSUS', `${why}${listed === '' ? '' : ` (${listed})`}.`, {
    issues: votes.map(({ worker, digest }) => ({ path: worker, message: digest })),
  });
}

function votersOf({ voters = DEFAULT_VOTERS }: Pick<AnyTool, 'voters'>): number {
  return voters;
}
