import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { queueNameOf } from '../../../../src/shared/queues/priority.ts';
import { needOf } from '../../../../src/shared/store/calls/call-record.ts';
import type { Claim } from '../../../../src/shared/store/calls/claim/claim.ts';
import type { DispatchedJob } from '../../../../src/shared/store/dispatch/direct-dispatch.ts';
import { DispatchReader } from '../../../../src/shared/store/dispatch/direct-dispatch.ts';
import {
  type FetchedJob,
  type FetchRequest,
  LEFT_TO_OTHERS,
  needExcept,
} from '../../../../src/shared/store/dispatch/job-dispatch.ts';
import { callOfJob } from '../../../../src/shared/store/queues/jobs.ts';
import { eventually } from '../../../helpers/signal.ts';
import { type Books, callIdFor, claimOf, LEASE_MS, openBooks, PLACE } from '../calls.ts';

const OLD = '1.0.0';
const NEW = '2.0.0';

/** A call that was validated against this version of its tool. */
function claimFor(name: string, version: string, sessionKey?: string): Claim {
  const claim = claimOf(name, sessionKey === undefined ? {} : { sessionKey });
  return { ...claim, request: { ...claim.request, tool: { version, definition: 'd' } } };
}

let deliveries = 0;

/** A worker that takes, but runs nothing. What `listens` is pushed to arrives by itself. */
async function workerOf(books: Books, workerId: string, options: { readonly listens?: boolean } = {}) {
  const arrived: string[] = [];
  const note = ({ job }: Pick<FetchedJob, 'job'>) => {
    if (Array.isArray(job) && typeof job[1] === 'string') arrived.push(job[1]);
  };
  const reader =
    options.listens === true
      ? new DispatchReader(books.ledger.access, {
          url: books.world.redisUrl,
          prefix: books.world.prefix,
          partition: PLACE,
          workerId,
          leaseMs: LEASE_MS,
          onJobs: (jobs: readonly DispatchedJob[]) => jobs.forEach(note),
          onError: () => {},
        })
      : undefined;
  if (reader !== undefined) {
    onTestFinished(() => reader.close());
    const channel = () => `${books.ledger.keys(PLACE).job('')}push:${reader.state.name}`;
    await eventually(async () => (await books.redis.pubsub('NUMSUB', channel()))[1] === 1);
  }
  const take = async (free: number): Promise<readonly FetchedJob[]> => {
    deliveries += 1;
    const fetched: FetchRequest = {
      lockToken: `lock of ${workerId}`,
      timestampMs: Date.now(),
      requestedAtMs: performance.now(),
      workers: 1,
      leaseMs: LEASE_MS,
      workerId,
      token: `delivery-${deliveries}`,
      capacity: () => ({ free, ...(reader === undefined ? {} : { dispatches: reader.state }) }),
    };
    const taken = await books.dispatch.fetch(PLACE, fetched, free);
    taken.forEach(note);
    return taken;
  };
  /** What the worker does that holds the job. */
  const skipWorker = async (jobId: string, version: string, others: readonly string[] = ['new']) => {
    const { callId } = callOfJob(jobId);
    const record = await books.ledger.read(callId);
    await books.ledger.postpone(callId, record?.fence ?? 0, { phase: 'queued', attempts: [], delayMs: 0 });
    const lockToken = (await books.redis.get(`${books.ledger.keys(PLACE).job(jobId)}:lock`)) ?? '';
    const need = needOf(claimFor('any', version).request);
    return books.dispatch.skipWorker(PLACE, { jobId, lockToken, session: 'session-1', need, workerId, others });
  };
  return { workerId, arrived, take, skipWorker };
}

async function claimAll({ ledger }: Books, claims: readonly Claim[]): Promise<void> {
  for (const claim of claims) expect(await ledger.claim(claim)).toMatchObject({ kind: 'claimed' });
}

const names = (jobIds: readonly string[], all: readonly string[]) =>
  jobIds.map((id) => all.find((name) => callIdFor(name) === callOfJob(id).callId));

describe('a call that a worker lacks the tool for', () => {
  test('waits for workers that have it: a worker that lacks it skips the job, and notifies another one', async () => {
    const books = await openBooks();
    const [old, fresh] = [await workerOf(books, 'old'), await workerOf(books, 'new')];
    await claimAll(books, [claimFor('a', NEW)]);
    await old.take(1);
    await old.skipWorker(old.arrived[0] ?? '', NEW);
    await books.redis.del(books.ledger.keys(PLACE).job('marker'));
    expect(await old.take(4)).toMatchObject([{ job: LEFT_TO_OTHERS }]);
    expect(await books.redis.zcard(books.ledger.keys(PLACE).job('marker'))).toBe(1);
    expect(await fresh.take(4)).toMatchObject([
      { beginResult: { kind: 'started', recovered: false, earlierAttempts: [] } },
    ]);
    expect(fresh.arrived).toEqual(old.arrived);
  });

  test('keeps the line of its tenant and importance, so that others are before it or behind it as they were', async () => {
    const books = await openBooks();
    const [old, fresh] = [await workerOf(books, 'old'), await workerOf(books, 'new')];
    await claimAll(books, [claimFor('first', OLD)]);
    const background = queueNameOf('background', 'tenant', 1);
    const crowd = Array.from({ length: 8 }, (_, index) => `background-${index}`);
    await claimAll(
      books,
      crowd.map((name) => ({ ...claimFor(name, NEW), fairQueue: background })),
    );
    await old.take(16);
    for (const jobId of old.arrived) if (names([jobId], crowd)[0] !== undefined) await old.skipWorker(jobId, NEW);
    await claimAll(books, [claimFor('normal-0', NEW), claimFor('normal-1', NEW), claimFor('normal-2', NEW)]);
    await fresh.take(4);
    expect(
      names(fresh.arrived, ['normal-0', 'normal-1', 'normal-2']).filter((name) => name !== undefined),
    ).toHaveLength(3);
  });

  test('lets the next ones go past that worker, which still takes what it can run from behind them', async () => {
    const books = await openBooks();
    const [old, fresh] = [await workerOf(books, 'old'), await workerOf(books, 'new')];
    await claimAll(books, [claimFor('a', NEW)]);
    await old.take(1);
    await old.skipWorker(old.arrived.pop() ?? '', NEW);
    const waiting = ['b', 'c', 'd', 'e'];
    await claimAll(books, [claimFor('b', NEW), claimFor('c', NEW), claimFor('d', OLD), claimFor('e', NEW)]);
    await old.take(8);
    expect(names(old.arrived, waiting)).toEqual(['d']);
    expect(await old.take(8)).toMatchObject([{ job: LEFT_TO_OTHERS }]);
    while (fresh.arrived.length < 4) expect(await fresh.take(8)).not.toEqual([]);
    expect(names(fresh.arrived, ['a', ...waiting]).toSorted()).toEqual(['a', 'b', 'c', 'e']);
  });

  test('is pushed to a worker that has it, however idle the other is; calls for that one are pushed past those in line', async () => {
    const books = await openBooks();
    const old = await workerOf(books, 'old', { listens: true });
    await old.take(8);
    await claimAll(books, [claimFor('a', NEW)]);
    await eventually(() => old.arrived.length === 1);
    await old.skipWorker(old.arrived.pop() ?? '', NEW);
    const fresh = await workerOf(books, 'new', { listens: true });
    await fresh.take(2);
    expect(names(fresh.arrived, ['a'])).toEqual(['a']);
    await claimAll(books, [claimFor('b', NEW), claimFor('c', NEW), claimFor('d', OLD)]);
    await eventually(() => fresh.arrived.length === 2 && old.arrived.length === 1);
    expect(names(fresh.arrived, ['a', 'b'])).toEqual(['a', 'b']);
    expect(names(old.arrived, ['d'])).toEqual(['d']);
    expect(await books.ledger.read(callIdFor('c'))).toMatchObject({ phase: 'queued', fence: 0 });
  });

  test('is offered to that worker again once what it lacks is forgotten, which happens by itself', async () => {
    const books = await openBooks();
    const old = await workerOf(books, 'old');
    await claimAll(books, [claimFor('a', NEW)]);
    await old.take(1);
    await old.skipWorker(old.arrived[0] ?? '', NEW);
    const lackers = books.ledger.keys(PLACE).job('lackers');
    expect(await books.redis.pttl(lackers)).toBeGreaterThan(0);
    await books.redis.del(lackers);
    expect(await old.take(1)).toMatchObject([{ beginResult: { kind: 'started', fence: 2 } }]);
  });

  test('goes straight to one that has it and nothing to do', async () => {
    const books = await openBooks();
    const [old, fresh] = [await workerOf(books, 'old'), await workerOf(books, 'new', { listens: true })];
    await claimAll(books, [claimFor('a', NEW), claimFor('b', NEW)]);
    await old.take(2);
    await fresh.take(1);
    const [first = '', second = ''] = old.arrived;
    await old.skipWorker(first, NEW);
    await eventually(() => fresh.arrived.length === 1);
    expect(await books.ledger.read(callOfJob(first).callId)).toMatchObject({ phase: 'queued', fence: 1 });
    const keys = books.ledger.keys(PLACE);
    expect(await books.redis.get(`${keys.job(first)}:lock`)).toBe(`new ${callOfJob(first).generation}`);
    // It has one slot.
    await old.skipWorker(second, NEW);
    expect(await books.redis.zrange(keys.job('prioritized'), '0', '-1')).toEqual([second]);
    expect((await books.redis.lrange(keys.job('active'), 0, -1)).toSorted()).toEqual([first]);
  });

  test('that some workers must not run is offered to them again now and then: if no other worker comes, one of them must report it', async () => {
    const leave = async () => {
      const books = await openBooks();
      const old = await workerOf(books, 'old');
      await claimAll(books, [claimFor('a', OLD)]);
      await old.take(1);
      const [jobId = ''] = old.arrived;
      const passed = { jobId, lockToken: 'lock of old', session: 'session-1', workerId: 'old' };
      await books.ledger.postpone(callOfJob(jobId).callId, 1, { phase: 'queued', attempts: [], delayMs: 0 });
      const need = needExcept(['old']);
      expect(await books.dispatch.skipWorker(PLACE, { ...passed, need, others: ['other'] })).toBe(true);
      expect(await books.redis.exists(books.ledger.keys(PLACE).job('lackers'))).toBe(0);
      const isLeft = async () => (await old.take(1))[0]?.job === LEFT_TO_OTHERS;
      return { books, jobId, isLeft };
    };
    // The first look is one of those at which it is offered, or it is left to others: then a later look takes it.
    const leftAtFirst = async () => {
      const call = await leave();
      return (await call.isLeft()) ? call : undefined;
    };
    const { books, jobId, isLeft } = await eventually(leftAtFirst);
    await eventually(async () => !(await isLeft()));
    expect(await books.redis.lrange(books.ledger.keys(PLACE).job('active'), 0, -1)).toEqual([jobId]);
  });

  test('stays where it is when all that should have it lack it, too', async () => {
    const books = await openBooks();
    const [old, other] = [await workerOf(books, 'old'), await workerOf(books, 'other')];
    await claimAll(books, [claimFor('a', NEW), claimFor('b', NEW)]);
    await old.take(1);
    expect(await old.skipWorker(old.arrived[0] ?? '', NEW, ['other'])).toBe(true);
    await other.take(1);
    const [id = ''] = other.arrived;
    expect(await other.skipWorker(id, NEW, ['old'])).toBe(false);
    expect(await books.redis.lrange(books.ledger.keys(PLACE).job('active'), 0, -1)).toEqual([id]);
  });

  test('is left alone by a worker that does not hold its job any more', async () => {
    const books = await openBooks();
    const old = await workerOf(books, 'old');
    await claimAll(books, [claimFor('a', NEW)]);
    await old.take(1);
    const [id = ''] = old.arrived;
    const keys = books.ledger.keys(PLACE);
    const need = needOf(claimFor('a', NEW).request);
    const passed = { jobId: id, lockToken: 'a lock that was lost', session: 'session-1', need, workerId: 'old' };
    await books.dispatch.skipWorker(PLACE, { ...passed, others: ['new'] });
    expect(await books.redis.lrange(keys.job('active'), 0, -1)).toEqual([id]);
    expect(await books.redis.exists(keys.job('lackers'), keys.job('prioritized'))).toBe(0);
  });

  test('reaches a worker that has it in any mixture of calls, and each worker gets it once at most', async () => {
    const versions = ['1.0.0', '2.0.0', '3.0.0'];
    /** Which versions a worker lacks. */
    const lacked: Readonly<Record<string, readonly string[]>> = { one: ['2.0.0'], two: ['1.0.0', '3.0.0'] };
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ version: fc.constantFrom(...versions), session: fc.constantFrom('s', 't', 'u') }), {
          minLength: 1,
          maxLength: 24,
        }),
        fc.array(fc.record({ worker: fc.constantFrom('one', 'two'), most: fc.integer({ min: 1, max: 5 }) }), {
          maxLength: 20,
        }),
        async (calls, turns) => {
          const books = await openBooks();
          const workers = { one: await workerOf(books, 'one'), two: await workerOf(books, 'two') };
          deliveries += 1;
          const prefix = `call-${deliveries}`;
          const versionOf = new Map<string, string>();
          const ran: string[] = [];
          const asked: string[] = [];
          const run = async (name: 'one' | 'two', most: number) => {
            const worker = workers[name];
            await worker.take(most);
            const taken = worker.arrived.splice(0);
            for (const id of taken) {
              const { callId } = callOfJob(id);
              const version = versionOf.get(callId) ?? '';
              if (lacked[name]?.includes(version) === true) {
                asked.push(`${name} ${callId}`);
                await worker.skipWorker(id, version, [name === 'one' ? 'two' : 'one']);
              } else ran.push(callId);
            }
            return taken.length;
          };
          for (const [index, { version, session }] of calls.entries()) {
            const claim = claimFor(`${prefix}.${index}`, version, session);
            versionOf.set(claim.callId, version);
            await claimAll(books, [claim]);
            const turn = turns[index];
            if (turn !== undefined) await run(turn.worker as 'one' | 'two', turn.most);
          }
          while ((await run('one', 4)) + (await run('two', 4)) > 0);
          expect(ran.toSorted()).toEqual([...versionOf.keys()].toSorted());
          expect(new Set(asked).size).toBe(asked.length);
        },
      ),
      { numRuns: 20 },
    );
  });
});
