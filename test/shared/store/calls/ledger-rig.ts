/** What the tests of the ledger’s scripts share. */
import { jobIdOf } from '../../../../src/shared/store/queues/jobs.ts';
import { type Books, claimOf, failureOutcome, PLACE, settle, started } from '../calls.ts';

export const CANCELLED: ReturnType<typeof failureOutcome> = failureOutcome('CANCELLED');

export function cancel({ ledger }: Books, callId: string, state: 'cancelled' | 'failed' = 'cancelled') {
  return ledger.cancel(callId, {
    state,
    beforeStart: { ...CANCELLED, settlement: 'cancelled-before-start' },
    betweenAttempts: { ...CANCELLED, settlement: 'cancelled' },
    ttlMs: 50_000,
    inboxId: 'canceller',
  });
}

export async function jobExists({ redis, ledger }: Books, callId: string, generation: string): Promise<boolean> {
  return (await redis.exists(ledger.keys(PLACE).job(jobIdOf(callId, generation)))) === 1;
}

export async function inbox({ redis, ledger }: Books, id = 'producer-1'): Promise<Record<string, unknown>[]> {
  const events = await redis.lrange(ledger.keys(PLACE).inbox(id), 0, -1);
  return events.map((event) => JSON.parse(event) as Record<string, unknown>);
}

/** A call in each of the places where it can stand, with the fence that its last attempt had. */
export const STANDINGS = {
  queued: async (books: Books) => {
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    return { claim, fence: 0 };
  },
  running: async (books: Books) => {
    const { claim } = await STANDINGS.queued(books);
    return { claim, fence: (await started(books, claim)).fence };
  },
  'waiting-retry': async (books: Books) => {
    const { claim, fence } = await STANDINGS.running(books);
    await books.ledger.postpone(claim.callId, fence, { phase: 'waiting-retry', attempts: [], delayMs: 0 });
    return { claim, fence };
  },
  'handed-back': async (books: Books) => {
    const { claim, fence } = await STANDINGS.running(books);
    await books.ledger.postpone(claim.callId, fence, { phase: 'queued', attempts: [], delayMs: 0 });
    return { claim, fence };
  },
  done: async (books: Books) => {
    const { claim, fence } = await STANDINGS.running(books);
    await settle(books, claim, fence);
    return { claim, fence };
  },
  failed: async (books: Books) => {
    const { claim, fence } = await STANDINGS.running(books);
    await settle(books, claim, fence, failureOutcome('HTTP_4XX'));
    return { claim, fence };
  },
  unknown: async (books: Books) => {
    const { claim, fence } = await STANDINGS.running(books);
    await settle(books, claim, fence, failureOutcome('OUTCOME_UNKNOWN'));
    return { claim, fence };
  },
  cancelled: async (books: Books) => {
    const { claim } = await STANDINGS.queued(books);
    await cancel(books, claim.callId);
    return { claim, fence: 0 };
  },
  gone: async (_books: Books) => ({ claim: claimOf('nobody'), fence: 1 }),
} as const;
