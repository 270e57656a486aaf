/** A ledger in a world of its own, and calls to put into it. */
import { onTestFinished } from 'vitest';
import type { ToolCallEnvelope } from '../../../src/shared/calls/envelope.ts';
import { type Outcome, resultError } from '../../../src/shared/calls/outcome.ts';
import { failureOf } from '../../../src/shared/errors/failure.ts';
import type { RetryAllowance } from '../../../src/shared/retries/retry-budget.ts';
import { digest } from '../../../src/shared/schema/canonical-json.ts';
import type { BeginResult, StartedAttempt } from '../../../src/shared/store/calls/begin-attempt.ts';
import type { Claim } from '../../../src/shared/store/calls/claim/claim.ts';
import { Ledger } from '../../../src/shared/store/calls/ledger.ts';
import { Breakers } from '../../../src/shared/store/circuits/circuits.ts';
import type { FetchRequest } from '../../../src/shared/store/dispatch/job-dispatch.ts';
import { JobDispatch } from '../../../src/shared/store/dispatch/job-dispatch.ts';
import type { CallJob } from '../../../src/shared/store/queues/jobs.ts';
import { openConnection, type Redis } from '../../../src/shared/store/redis/connection.ts';
import { uuidv7 } from '../../../src/shared/util/time.ts';
import { createWorld, type World } from '../../helpers/world.ts';

export const PLACE = { tier: 'workspace', shard: 0 } as const;
export const LEASE_MS = 30_000;
export const CIRCUIT = 'tool:tools.note';

export interface Books {
  readonly world: World;
  readonly redis: Redis;
  readonly ledger: Ledger;
  readonly dispatch: JobDispatch;
  readonly breakers: Breakers;
}

export async function openBooks(retentionMs = 60_000): Promise<Books> {
  const world = await createWorld();
  const redis = openConnection({ url: world.redisUrl, name: `${world.prefix}:test`, mode: 'fail-fast' });
  onTestFinished(() => redis.disconnect());
  const ledger = new Ledger(redis, world.prefix, retentionMs);
  return {
    world,
    redis,
    ledger,
    dispatch: new JobDispatch(ledger.access),
    breakers: new Breakers(redis, world.prefix),
  };
}

export function callIdFor(name: string): string {
  return `w0.${digest(name)}`;
}

export function envelopeFor(name: string, sessionKey = 'session-1'): ToolCallEnvelope {
  return {
    contractVersion: '1.1',
    requestId: uuidv7(),
    toolCallId: `model-${name}`,
    toolName: 'note',
    toolNamespace: 'tools',
    target: { sessionKey, actorId: 'ada' },
    payload: { version: '1.0', params: { text: name }, idempotencyKey: name },
    transport: { dedupeMode: 'enforced', retryBudget: { maxAttempts: 4, maxElapsedMs: 30_000 } },
    control: {},
    trace: {},
  };
}

let deliveries = 0;

/** What a worker asks for jobs with, each time under another token. */
export function fetched(): FetchRequest {
  deliveries += 1;
  return {
    lockToken: 'lock-1',
    timestampMs: Date.now(),
    requestedAtMs: performance.now(),
    workers: 1,
    capacity: () => ({ free: 64 }),
    leaseMs: LEASE_MS,
    workerId: 'worker-1',
    token: `delivery-${deliveries}`,
  };
}

let generations = 1_700_000_000_000;

export function claimOf(name: string, change: Partial<Claim> & { readonly sessionKey?: string } = {}): Claim {
  const { sessionKey, ...rest } = change;
  generations += 1;
  return {
    callId: callIdFor(name),
    mode: 'enforced',
    paramsDigest: digest(`params of ${name}`),
    request: {
      envelope: envelopeFor(name, sessionKey),
      tool: { version: '1.0.0', definition: 'd' },
      idempotencyKey: name,
    },
    generation: String(generations),
    circuit: CIRCUIT,
    keepJob: true,
    inboxId: 'producer-1',
    ...rest,
  };
}

export function jobOf(claim: Claim): CallJob {
  return { callId: claim.callId, generation: claim.generation, session: claim.request.envelope.target.sessionKey };
}

let tokens = 0;

export function begin({ ledger }: Books, claim: Claim, token?: string): Promise<BeginResult> {
  tokens += 1;
  return ledger.begin(jobOf(claim), { workerId: 'worker-1', leaseMs: LEASE_MS, token: token ?? `token-${tokens}` });
}

export async function started(books: Books, claim: Claim): Promise<StartedAttempt> {
  const answer = await begin(books, claim);
  if (answer.kind !== 'started') throw new Error(`the attempt did not start: ${answer.kind}`);
  return answer;
}

export const SUCCESS: Extract<Outcome, { status: 'success' }> = {
  status: 'success',
  toolName: 'note',
  durationMs: 5,
  attempts: 1,
  output: { content: 'noted' },
};

export function failureOutcome(code: Parameters<typeof failureOf>[0]): Exclude<Outcome, { status: 'success' }> {
  return {
    status: 'error',
    toolName: 'note',
    durationMs: 5,
    attempts: 1,
    error: resultError(failureOf(code), 'error'),
  };
}

export function settle(
  { ledger }: Books,
  claim: Pick<Claim, 'callId'>,
  fence: number,
  outcome: Outcome = SUCCESS,
  change: {
    readonly ttlMs?: number;
    readonly state?: 'done' | 'failed' | 'cancelled';
    readonly refill?: RetryAllowance;
  } = {},
) {
  return ledger.settle({
    callId: claim.callId,
    fence,
    state: change.state ?? (outcome.status === 'success' ? 'done' : 'failed'),
    outcome,
    outcomeJson: JSON.stringify(outcome),
    attempts: [],
    ttlMs: change.ttlMs ?? 60_000,
    ...(change.refill !== undefined && { refill: change.refill }),
  });
}
