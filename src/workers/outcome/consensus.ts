/** The consensus that a tool may need: several workers run the call, and enough of them must agree on its result. */
import { mayVote, type Tally, tally, type Vote, votesOf } from '../../shared/calls/consensus.ts';
import { classify } from '../../shared/errors/classify-error.ts';
import { type Failure, failureOf } from '../../shared/errors/failure.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import { needExcept } from '../../shared/store/dispatch/job-dispatch.ts';
import type { AnyTool } from '../../shared/tools/tool.ts';
import type { ToolResult } from '../../shared/tools/tool-result.ts';
import { DEFAULT_VOTERS } from '../../shared/tools/trust-class.ts';
import { findUnserializable } from '../../shared/util/json/json-support.ts';
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import { withinMs } from '../../shared/util/wait.ts';
import { type Attempt, attemptsWith } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { CallEnder } from './end-call.ts';
import type { Parking } from './park-call.ts';

/** The delay of a call that this worker has voted on, while no other voter is alive. */
const NEXT_VOTER_MS = 200;
/** `normalise` runs after the attempt's time limit. One that never ends would keep its slot for ever. */
const NORMALISE_MS = 5_000;

export interface ConsensusDeps {
  /** There are no other workers: a tool that needs a consensus runs once. Default: no. */
  readonly isAlone?: boolean | undefined;
  /** How long a call waits for a voter. */
  readonly toolWaitMs: number;
  /** IDs of other living workers that have the tool. */
  othersWith?(tool: AnyTool): readonly string[];
  readonly parking: Pick<Parking, 'requeue' | 'postpone'>;
  readonly ender: Pick<CallEnder, 'giveUp'>;
  readonly schedule?: Schedule | undefined;
}

export type VoteResult =
  | { readonly kind: 'agreed' }
  | { readonly kind: 'incomparable' | 'split'; readonly failure: Failure }
  /** More workers have to run the call. */
  | { readonly kind: 'open'; readonly end: JobOutcome };

export class Consensus {
  readonly #deps: ConsensusDeps;

  constructor(deps: ConsensusDeps) {
    this.#deps = deps;
  }

  /** Leaves a call on which this worker has voted to other workers. Ends it if none comes in time. Undefined: it may run here. */
  async leaveToOtherVoters(attempt: Attempt): Promise<JobOutcome | undefined> {
    if (this.#deps.isAlone === true || mayRunHere(attempt)) return undefined;
    const { started } = attempt;
    const lastVoteAtMs = started.earlierAttempts.at(-1)?.finishedAtMs ?? started.firstStartedAtMs;
    if (started.nowMs - lastVoteAtMs > this.#deps.toolWaitMs)
      return this.#deps.ender.giveUp(attempt, tooFewVotes(attempt));
    const next = this.#nextVoters(attempt, votesOf(started.earlierAttempts));
    const queued = await this.#deps.parking.requeue(attempt, next === undefined ? NEXT_VOTER_MS : 0);
    return next !== undefined && queued.kind === 'released' ? next : queued;
  }

  /** Whether a result of the tool is a vote. */
  isNeededFor(tool: AnyTool): boolean {
    return this.#deps.isAlone !== true && needsConsensus(tool);
  }

  /** Counts the result as this worker's vote. */
  async vote(attempt: Attempt, result: ToolResult<unknown>): Promise<VoteResult> {
    let counted: CountedVote;
    try {
      counted = await countVote(attempt, result, this.#deps.schedule);
    } catch (error) {
      const message = `The result cannot be compared: ${classify(error).message}`;
      return { kind: 'incomparable', failure: failureOf('RESULT_INVALID', message) };
    }
    attempt.running.vote = counted.vote.digest;
    if (counted.kind === 'agreed') return { kind: 'agreed' };
    if (counted.kind === 'split') return { kind: 'split', failure: splitVotes(counted.votes) };
    const next = this.#nextVoters(attempt, counted.votes);
    const attempts = attemptsWith(attempt, undefined);
    const queued = await this.#deps.parking.postpone(attempt, { phase: 'queued', attempts, delayMs: 0 });
    return { kind: 'open', end: next !== undefined && queued.kind === 'released' ? next : queued };
  }

  /** Living workers that have the tool and have not voted. Undefined where there are none, or where all votes are in. */
  #nextVoters({ tool }: Attempt, votes: readonly Vote[]): Extract<JobOutcome, { kind: 'skipped' }> | undefined {
    const voted = votes.map(({ worker }) => worker);
    const others = (this.#deps.othersWith?.(tool) ?? []).filter((id) => !voted.includes(id));
    if (others.length === 0 || votes.length >= votersOf(tool)) return undefined;
    return { kind: 'skipped', need: needExcept(voted), others };
  }
}

function needsConsensus({ trustClass }: Pick<AnyTool, 'trustClass'>): boolean {
  return trustClass === 'ConsensusRequired';
}

/** False: this worker has voted, and the call goes to another one without consuming an attempt. */
function mayRunHere({ tool, started, workerId }: Attempt): boolean {
  return !needsConsensus(tool) || mayVote(votesOf(started.earlierAttempts), workerId, votersOf(tool));
}

type CountedVote = Tally & { readonly vote: Vote; readonly votes: readonly Vote[] };

/** The tool's own `normalise` selects the part of the output that counts. It may throw. */
export async function countVote(
  { tool, started, workerId }: Attempt,
  result: ToolResult<unknown>,
  schedule: Schedule = systemSchedule,
): Promise<CountedVote> {
  const comparable =
    tool.normalise === undefined ? result.output : await normaliseOutput(tool, result.output, schedule);
  // Workers must not agree on nothing, nor on values that JSON makes equal, such as invalid dates.
  const kind = comparable === undefined ? 'nothing' : findUnserializable(comparable)?.kind;
  if (kind !== undefined)
    throw new TypeError(`normalise of ${tool.name} must return a JSON-serializable value; it returned ${kind}`);
  const ballot = { output: comparable, success: result.success !== false };
  const vote = { worker: workerId, digest: digest(canonicalJson(ballot)) };
  const votes = votesOf(started.earlierAttempts);
  return {
    ...tally(votes, vote, votersOf(tool)),
    vote,
    votes: [...votes.filter(({ worker }) => worker !== workerId), vote],
  };
}

async function normaliseOutput(tool: AnyTool, output: unknown, schedule: Schedule): Promise<unknown> {
  const run = async () => ({ normalised: await tool.normalise?.(output) });
  const answer = await withinMs(run(), NORMALISE_MS, schedule);
  if (answer === undefined) throw new Error(`normalise of ${tool.name} did not end within ${NORMALISE_MS / 1_000} s`);
  return answer.normalised;
}

/** Too few workers have answered, and no other one comes. */
function tooFewVotes({ tool, started }: Attempt): Failure {
  const voters = votersOf(tool);
  const votes = votesOf(started.earlierAttempts);
  return noConsensus(`${votes.length} of ${voters} workers answered, and no other one came`, votes);
}

function splitVotes(votes: readonly Vote[]): Failure {
  const distinct = new Set(votes.map(({ digest }) => digest));
  return noConsensus(`${votes.length} workers found ${distinct.size} different results`, votes);
}

function noConsensus(reason: string, votes: readonly Vote[]): Failure {
  const listed = votes.map(({ worker, digest }) => `${worker}: ${digest}`).join('; ');
  return failureOf('NO_CONSENSUS', `${reason}${listed === '' ? '' : ` (${listed})`}.`, {
    issues: votes.map(({ worker, digest }) => ({ path: worker, message: digest })),
  });
}

function votersOf({ voters = DEFAULT_VOTERS }: Pick<AnyTool, 'voters'>): number {
  return voters;
}
