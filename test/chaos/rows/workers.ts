/** Workers that die, stand still, or are replaced. */
import { memoryGroup, memoryGroups } from '../memory-group.ts';
import { LEASE_MS } from '../rig.ts';
import { firstCall, inTheMiddle, load, mixedAsks, passes, type Row } from './row.ts';

const killedBeforeEffect: Row = {
  number: 1,
  fault: 'kill -9 of a worker before its effects',
  async run(rig) {
    const [worker, producer] = await Promise.all([rig.worker(), rig.producer()]);
    const gate = rig.gate('effects');
    const pending = await inTheMiddle(
      rig,
      producer,
      mixedAsks(rig, 8, () => ({ gate: gate.path })),
    );
    await worker.kill();
    gate.open();
    rig.healed();
    await rig.worker();
    await rig.settle(pending);
  },
};

const killedAfterEffect: Row = {
  number: 2,
  fault: 'kill -9 of workers after their effects, before they could say so, and of those that took over',
  async run(rig) {
    const producer = await rig.producer();
    const pending: Promise<unknown>[] = [];
    const gate = rig.gate('ends');
    for (const round of ['first', 'second']) {
      const worker = await rig.worker();
      await firstCall(rig, producer);
      const asks = mixedAsks(rig, 6, () => ({ lastGate: gate.path })).map((ask) => {
        const key = `${round}-${ask.key}`;
        return { ...ask, key, params: { ...ask.params, label: key } };
      });
      pending.push(...(await inTheMiddle(rig, producer, asks, 'effect')));
      await worker.kill();
    }
    gate.open();
    rig.healed();
    // Each runs the calls that lost an attempt one at a time.
    await Promise.all([rig.worker(), rig.worker()]);
    await rig.settle(pending);
  },
};

const killedWithChildren: Row = {
  number: 3,
  fault: 'kill -9 of a worker whose program has a grandchild in a session of its own',
  async run(rig) {
    const [worker, producer] = await Promise.all([rig.worker(), rig.producer()]);
    await firstCall(rig, producer);
    const asks = [1, 2, 3].map((number) => {
      const label = `shell-${number}`;
      return { tool: 'shell_children', key: label, params: { label } };
    });
    const pending = await inTheMiddle(rig, producer, asks);
    // The programs are on their way.
    await passes(800);
    await worker.kill();
    rig.healed();
    await rig.worker();
    await rig.settle(pending);
    // What survived would have its effect by now.
    await passes(3_500);
  },
};

const stopped: Row = {
  number: 5,
  fault: 'SIGSTOP of a worker until others took over, then SIGCONT',
  async run(rig) {
    const [worker, producer] = await Promise.all([rig.worker(), rig.producer()]);
    await firstCall(rig, producer);
    const gate = rig.gate('effects');
    const asks = mixedAsks(rig, 8, (number) => ({ gate: gate.path, deaf: number % 2 === 1 }));
    const pending = await inTheMiddle(rig, producer, asks);
    worker.signal('SIGSTOP');
    await rig.worker();
    await passes(LEASE_MS * 2);
    gate.open();
    await rig.settle(pending);
    rig.healed();
    worker.signal('SIGCONT');
    // The one that stood still does what it has left to do.
    await passes(1_500);
  },
};

const blocked: Row = {
  number: 6,
  fault: 'a tool that holds the event loop for three leases',
  async run(rig) {
    const producer = await rig.producer();
    const worker = await rig.worker();
    const key = 'blocking';
    const pending = await inTheMiddle(rig, producer, [
      { tool: 'block', key, params: { label: key, blockMs: LEASE_MS * 3 } },
    ]);
    const other = await rig.worker();
    pending.push(...(await inTheMiddle(rig, producer, mixedAsks(rig, 3))));
    await rig.settle(pending);
    rig.healed();
    // Both may still be in the middle of it.
    await passes(LEASE_MS * 3);
    for (const { alive } of [worker, other]) rig.bound('I9', 'dead workers', alive ? 0 : 1, 0);
  },
};

const POISON_WORKERS = 4;

const poison: Row = {
  number: 23,
  fault: 'a call that kills every worker that runs it, four workers',
  async run(rig) {
    const producer = await rig.producer();
    await Promise.all(Array.from({ length: POISON_WORKERS }, () => rig.worker()));
    const pending = [
      rig.persist(producer, { tool: 'poison', key: 'poison', params: {} }),
      ...mixedAsks(rig, 12, () => ({ beforeMs: rig.random.between(0, 200) })).map((ask) => rig.persist(producer, ask)),
    ];
    rig.healed();
    await rig.settle(pending);
    const starts = rig.effects('poison').length;
    rig.bound('I7', 'starts of the poisoned call', starts, 3);
    rig.bound('I9', 'workers that died', rig.workers.filter(({ alive }) => !alive).length, 3);
    rig.notes.push(`${starts} starts`);
  },
};

const rolling: Row = {
  number: 29,
  fault: 'SIGTERM and replacement of every worker under load, one killed in its grace',
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker(), rig.worker(), rig.worker()]);
    const asks = mixedAsks(rig, 300, () => ({ beforeMs: rig.random.between(0, 120), afterMs: 10 }));
    const all = load(rig, producer, asks, 16);
    for (const [index, worker] of [...rig.workers].entries()) {
      await passes(400);
      worker.signal('SIGTERM');
      if (index === 1) await worker.kill();
      await rig.worker();
    }
    rig.healed();
    await all;
    await rig.settle();
  },
};

const MEMORY_LIMIT_BYTES = 400 * 1_024 * 1_024;

const memoryPressure: Row = {
  number: 22,
  fault: 'a program that takes all memory of its worker (memory cgroup of 400 MB)',
  needs: () => (memoryGroups() ? undefined : 'needs the right to make a memory cgroup (v1)'),
  async run(rig) {
    const [worker, producer] = await Promise.all([rig.worker(), rig.producer()]);
    using group = memoryGroup(worker.pid, MEMORY_LIMIT_BYTES);
    const neighbours = mixedAsks(rig, 12, () => ({ beforeMs: rig.random.between(0, 1_500) }));
    const hogs = [1, 2, 3].map((number) => {
      const key = `hog-${number}`;
      return { tool: 'hog', key, params: { label: key } };
    });
    rig.healed();
    await Promise.all([...hogs, ...neighbours].map((ask) => rig.persist(producer, ask)));
    await rig.settle();
    rig.bound('I9', 'dead workers', worker.alive ? 0 : 1, 0);
    rig.notes.push(`${group.kills()} programs killed`);
  },
};

export const workerRows: readonly Row[] = [
  killedBeforeEffect,
  killedAfterEffect,
  killedWithChildren,
  stopped,
  blocked,
  poison,
  rolling,
  memoryPressure,
];
