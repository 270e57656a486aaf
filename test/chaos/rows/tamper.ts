/** Somebody who can write to Redis. */
import { type Job, Queue } from 'bullmq';
import type { Rig } from '../rig.ts';
import { inTheMiddle, load, passes, type Row } from './row.ts';

const TAMPERED = 6;
const RECORDS = 'pawl:{workspace}:call:*';

function victims(prefix: string) {
  return Array.from({ length: TAMPERED }, (_, number) => {
    const key = `${prefix}-${number}`;
    return { tool: 'record_once', key, params: { label: key } };
  });
}

/** The queue as its jobs' owner, or anybody else, can open it. */
async function withQueue(rig: Rig, act: (queue: Queue) => Promise<void>): Promise<void> {
  const connection = { url: rig.server.url };
  const pawl = { connection, prefix: 'pawl:{workspace}' };
  const queue = rig.stack === 'pawl' ? new Queue('workspace', pawl) : new Queue('calls', { connection });
  try {
    await act(queue);
  } finally {
    await queue.close();
  }
}

/** Writes other parameters into every call that waits. */
async function rewriteWaiting({ stack, server: { admin } }: Rig): Promise<void> {
  const [pattern, field] = stack === 'pawl' ? [RECORDS, 'request'] : ['bull:calls:waiting-*', 'data'];
  for (const record of await admin.keys(pattern)) {
    if ((await admin.type(record)) !== 'hash') continue;
    const text = (await admin.hget(record, field)) ?? '';
    if (text.includes('"waiting-'))
      await admin.hset(record, field, text.replaceAll('"label":"waiting-', '"label":"forged-'));
  }
}

/** Queues a call that nobody made: for Pawl, with a copy of a true record under another name. */
async function forge({ stack, server: { admin } }: Rig, queue: Queue): Promise<void> {
  if (stack === 'naive') {
    await queue.add('record_once', { key: 'forged', params: { label: 'forged' } }, { jobId: 'forged' });
    return;
  }
  for (const record of await admin.keys(RECORDS)) {
    const fields = await admin.hgetall(record);
    if (fields['state'] !== 'done') continue;
    const name = record.slice(record.lastIndexOf(':') + 1);
    const callId = `${name.slice(0, -4)}${name.endsWith('0000') ? '1111' : '0000'}`;
    const { outcome: _, ...rest } = fields;
    const forged = {
      ...rest,
      callId,
      state: 'inflight',
      phase: 'queued',
      request: rest['request']?.replaceAll('true-', 'forged-'),
    };
    await admin.hset(`pawl:{workspace}:call:${callId}`, forged);
    const data = { callId, generation: rest['generation'], session: 'chaos' };
    await queue.add('record_once', data, { jobId: `${callId}.${rest['generation']}` });
  }
}

const rewritten: Row = {
  number: 37,
  fault: 'parameters rewritten in Redis, and calls forged there (signatures on)',
  env: { PAWL_SIGNING_KEYS: 'chaos:a-key-that-only-these-processes-know' },
  async run(rig) {
    const [producer, worker] = await Promise.all([rig.producer(), rig.worker()]);
    await load(rig, producer, victims('true'), TAMPERED);
    worker.signal('SIGSTOP');
    const pending = victims('waiting').map((ask) => rig.persist(producer, ask));
    await passes(300);
    await rewriteWaiting(rig);
    await withQueue(rig, (queue) => forge(rig, queue));
    worker.signal('SIGCONT');
    rig.healed();
    await rig.settle(pending);
    await passes(1_000);
    rig.bound('I9', 'dead workers', worker.alive ? 0 : 1, 0);
  },
};

/** Writes another result into every record of a call that has ended. */
async function forgeResults({ stack, server: { admin } }: Rig): Promise<void> {
  const [pattern, field] = stack === 'pawl' ? [RECORDS, 'outcome'] : ['bull:calls:forge-*', 'returnvalue'];
  for (const record of await admin.keys(pattern)) {
    const text = (await admin.hget(record, field)) ?? '';
    await admin.hset(record, field, text.replaceAll('"label":"forge-', '"label":"forged-'));
  }
}

/** Makes calls that have ended look as if they had just been handed in. */
async function replay({ stack, server: { admin } }: Rig, queue: Queue): Promise<void> {
  if (stack === 'naive') {
    for (const job of await queue.getCompleted()) if (job.id?.startsWith('replay-')) await job.retry('completed');
    return;
  }
  for (const record of await admin.keys(RECORDS)) {
    const { request = '', generation } = await admin.hgetall(record);
    if (!request.includes('"replay-')) continue;
    await admin.hset(record, { state: 'inflight', phase: 'queued' });
    await admin.persist(record);
    const callId = record.slice(record.lastIndexOf(':') + 1);
    const jobId = `${callId}.${generation}`;
    await queue.remove(jobId);
    await queue.add('record_once', { callId, generation, session: 'chaos' }, { jobId });
  }
}

const replayed: Row = {
  number: 40,
  fault: 'results forged in Redis, and signed calls replayed there (signatures on)',
  env: { PAWL_SIGNING_KEYS: 'chaos:a-key-that-only-these-processes-know' },
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker()]);
    const asks = [...victims('forge'), ...victims('replay')];
    await load(rig, producer, asks, TAMPERED);
    await forgeResults(rig);
    await withQueue(rig, (queue) => replay(rig, queue));
    rig.healed();
    await load(rig, producer, asks, TAMPERED);
    await passes(1_000);
    await rig.settle();
  },
};

/** What the buttons of Bull Board do. */
const BUTTONS: Readonly<Record<string, (job: Job, queue: Queue) => Promise<unknown>>> = {
  retry: async (job) => job.retry((await job.isFailed()) ? 'failed' : 'completed'),
  duplicate: (job, queue) => queue.add(job.name, job.data, { jobId: `again-${job.id}` }),
  'update data': (job) => job.updateData({ ...job.data, params: { label: 'changed' } }),
  promote: (job) => job.promote(),
};

const boardButtons: Row = {
  number: 38,
  fault: 'retry, duplicate, update data and promote on every job, as Bull Board can',
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker()]);
    await load(rig, producer, victims('done'), TAMPERED);
    const gate = rig.gate('effects');
    const pending = await inTheMiddle(
      rig,
      producer,
      victims('running').map((ask) => ({ ...ask, params: { ...ask.params, gate: gate.path } })),
    );
    await withQueue(rig, async (queue) => {
      const jobs = await queue.getJobs(['completed', 'failed', 'active', 'waiting', 'delayed']);
      for (const [name, press] of Object.entries(BUTTONS)) {
        const pressed = await Promise.allSettled(jobs.map((job) => press(job, queue)));
        const worked = pressed.filter(({ status }) => status === 'fulfilled').length;
        if (worked > 0) rig.notes.push(`${name} went through ${worked} times`);
      }
    });
    gate.open();
    rig.healed();
    await rig.settle(pending);
    await passes(1_500);
  },
};

export const tamperRows: readonly Row[] = [rewritten, boardButtons, replayed];
