/**
 * A simulation of a fleet on a Redis Cluster, event by event, for sizes that no machine of ours has. Every process takes all that came
 * while it was busy as one group, as event loops and pipelines do, so that groups grow with the load, and with them what a call costs.
 * Costs are CPU microseconds, measured by `scenarios/scale.ts`. Each process has a core of its own, unless `cores` says how many all share.
 */

/** What a process pays for each group that it handles, and for each call in it. */
export interface StepCost {
  readonly perGroup: number;
  readonly perCall: number;
}

export interface ScaleCosts {
  readonly producer: StepCost;
  readonly worker: StepCost;
  /** A script of claims, or of ends. A call goes through both: `perCall` is for one of them. */
  readonly redis: StepCost;
  /** Records of the audit trail, which in a cluster go to one list on one node. A call has one of each side. */
  readonly audit: StepCost;
}

export interface ScaleSize {
  readonly shards: number;
  readonly workers: number;
  readonly slots: number;
  readonly producers: number;
  /** Of each producer. */
  readonly inFlight: number;
  readonly toolUs: number;
  /** One way, between any two processes. */
  readonly networkUs: number;
  /** That all processes share; undefined gives each one its own. */
  readonly cores?: number;
}

export interface ScaleFigures {
  readonly callsPerSecond: number;
  readonly p50Ms: number;
  /** Share of the time, 0 to 1, in which the busiest of each kind was busy; of slots, the share that was taken. */
  readonly busy: Readonly<Record<'producer' | 'worker' | 'shard' | 'audit' | 'slots', number>>;
}

/** How long a process may have a core while others wait for one, as in Linux. */
const SLICE_US = 3_000;
/** How long a process gathers records before it sends them by themselves. */
const GATHER_US = 5_000;

/** Events in the order of their times: a binary heap. */
class Agenda {
  nowUs = 0;
  readonly #times: number[] = [];
  readonly #tasks: (() => void)[] = [];

  at(timeUs: number, task: () => void): void {
    let index = this.#times.length;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if ((this.#times[parent] as number) <= timeUs) break;
      this.#put(index, parent);
      index = parent;
    }
    this.#times[index] = timeUs;
    this.#tasks[index] = task;
  }

  runUntil(endUs: number): void {
    while (this.#times.length > 0 && (this.#times[0] as number) <= endUs) this.#next()();
    this.nowUs = endUs;
  }

  #next(): () => void {
    this.nowUs = this.#times[0] as number;
    const task = this.#tasks[0] as () => void;
    const [time, last] = [this.#times.pop() as number, this.#tasks.pop() as () => void];
    const length = this.#times.length;
    let index = 0;
    for (let child = 1; length > 0; child = 2 * index + 1) {
      if (child + 1 < length && (this.#times[child + 1] as number) < (this.#times[child] as number)) child += 1;
      if (child >= length || (this.#times[child] as number) >= time) {
        this.#times[index] = time;
        this.#tasks[index] = last;
        break;
      }
      this.#put(index, child);
      index = child;
    }
    return task;
  }

  #put(index: number, from: number): void {
    this.#times[index] = this.#times[from] as number;
    this.#tasks[index] = this.#tasks[from] as () => void;
  }
}

/** Cores that processes wait for, first come, first served. */
class Cores {
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(count: number) {
    this.#free = count;
  }

  take(run: () => void): void {
    if (this.#free === 0) return void this.#waiting.push(run);
    this.#free -= 1;
    run();
  }

  giveBack(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next();
  }
}

interface Call {
  readonly producer: Process;
  readonly shard: Shard;
  startedUs: number;
  /** When it took its slot. */
  givenUs: number;
}

/** A single thread: it handles what came, in groups. */
class Process {
  busyUs = 0;
  /** Audit records that wait. */
  records = 0;
  sending = false;
  readonly #agenda: Agenda;
  readonly #cores: Cores | undefined;
  readonly #inbox: { readonly costUs: number; readonly done: () => void }[] = [];
  #running = false;
  #sliceUs = 0;

  constructor(agenda: Agenda, cores: Cores | undefined) {
    this.#agenda = agenda;
    this.#cores = cores;
  }

  /** Does work that costs so long, after what came before. */
  work(costUs: number, done: () => void): void {
    this.#inbox.push({ costUs, done });
    if (this.#running) return;
    this.#running = true;
    this.#askForCore();
  }

  #askForCore(): void {
    if (this.#cores === undefined) this.#run();
    else this.#cores.take(() => this.#run());
  }

  #run(): void {
    const { costUs, done } = this.#inbox.shift() as { costUs: number; done: () => void };
    this.busyUs += costUs;
    this.#sliceUs += costUs;
    this.#agenda.at(this.#agenda.nowUs + costUs, () => {
      done();
      const hasMore = this.#inbox.length > 0;
      if (hasMore && this.#sliceUs < SLICE_US) return this.#run();
      this.#sliceUs = 0;
      this.#cores?.giveBack();
      if (hasMore) this.#askForCore();
      else this.#running = false;
    });
  }
}

/** Calls that came to a process while it was busy; it takes them all at once. */
class Gathered {
  readonly #process: Process;
  readonly #cost: StepCost;
  readonly #handle: (calls: Call[]) => void;
  #calls: Call[] = [];

  constructor(process: Process, cost: StepCost, handle: (calls: Call[]) => void) {
    this.#process = process;
    this.#cost = cost;
    this.#handle = handle;
  }

  add(calls: readonly Call[]): void {
    const first = this.#calls.length === 0;
    this.#calls.push(...calls);
    // The group is closed when its turn comes: what it costs is booked then.
    if (first) this.#process.work(this.#cost.perGroup, () => this.#close());
  }

  #close(): void {
    const calls = this.#calls;
    this.#calls = [];
    this.#process.work(this.#cost.perCall * calls.length, () => this.#handle(calls));
  }
}

class Shard {
  readonly node: Process;
  readonly queue: Call[] = [];

  constructor(node: Process) {
    this.node = node;
  }
}

interface Worker {
  readonly process: Process;
  readonly starts: Gathered;
  readonly ends: Gathered;
  free: number;
}

export function simulate(costs: ScaleCosts, size: ScaleSize, warmUpMs: number, measuredMs: number): ScaleFigures {
  const fleet = new SimulatedFleet(costs, size);
  fleet.run(1_000 * warmUpMs);
  fleet.forget();
  fleet.run(1_000 * measuredMs);
  return fleet.figures(1_000 * measuredMs);
}

class SimulatedFleet {
  readonly #costs: ScaleCosts;
  readonly #size: ScaleSize;
  readonly #agenda = new Agenda();
  readonly #shards: readonly Shard[];
  readonly #audit: Process;
  readonly #workers: readonly Worker[];
  readonly #producers: readonly Process[];
  /** What a producer does with the calls that ended. */
  readonly #answers = new Map<Process, (group: readonly Call[]) => void>();
  #nextWorker = 0;
  #latenciesUs: number[] = [];
  #slotsUs = 0;
  #endUs = 0;

  constructor(costs: ScaleCosts, size: ScaleSize) {
    this.#costs = costs;
    this.#size = size;
    const cores = size.cores === undefined ? undefined : new Cores(size.cores);
    const process = () => new Process(this.#agenda, cores);
    this.#shards = Array.from({ length: size.shards }, () => new Shard(process()));
    // The list of records is on the node of the first shard.
    this.#audit = (this.#shards[0] as Shard).node;
    this.#workers = Array.from({ length: size.workers }, () => this.#startWorker(process()));
    this.#producers = Array.from({ length: size.producers }, (_, index) => this.#startProducer(process(), index));
  }

  run(lengthUs: number): void {
    this.#endUs += lengthUs;
    this.#agenda.runUntil(this.#endUs);
  }

  forget(): void {
    this.#latenciesUs = [];
    this.#slotsUs = 0;
    for (const process of this.#all()) process.busyUs = 0;
  }

  figures(lengthUs: number): ScaleFigures {
    const busiest = (processes: readonly Process[]) => Math.max(0, ...processes.map(({ busyUs }) => busyUs)) / lengthUs;
    const sorted = Float64Array.from(this.#latenciesUs).sort();
    const { workers, slots } = this.#size;
    return {
      callsPerSecond: (1e6 * sorted.length) / lengthUs,
      p50Ms: (sorted[sorted.length >> 1] ?? Number.NaN) / 1_000,
      busy: {
        producer: busiest(this.#producers),
        worker: busiest(this.#workers.map(({ process }) => process)),
        shard: busiest(this.#shards.slice(this.#shards.length > 1 ? 1 : 0).map(({ node }) => node)),
        audit: this.#audit.busyUs / lengthUs,
        // Calls that took their slots before this time are counted whole.
        slots: Math.min(1, this.#slotsUs / (lengthUs * workers * slots)),
      },
    };
  }

  #all(): readonly Process[] {
    return [
      ...this.#shards.map(({ node }) => node),
      ...this.#workers.map(({ process }) => process),
      ...this.#producers,
    ];
  }

  #startProducer(process: Process, index: number): Process {
    const { shards, inFlight } = this.#size;
    const shard = this.#shards[index % shards] as Shard;
    const calls = Array.from(
      { length: inFlight },
      (): Call => ({ producer: process, shard, startedUs: 0, givenUs: 0 }),
    );
    const submit = new Gathered(process, this.#costs.producer, (group) => {
      for (const call of group) call.startedUs = this.#agenda.nowUs;
      this.#record(process, group.length);
      this.#send(() => this.#script(shard, group.length, () => this.#claimed(shard, group)));
    });
    this.#answers.set(process, (group) => {
      for (const call of group) this.#latenciesUs.push(this.#agenda.nowUs - call.startedUs);
      submit.add(group);
    });
    // They do not all begin in one moment.
    this.#agenda.at(index % GATHER_US, () => submit.add(calls));
    return process;
  }

  #startWorker(process: Process): Worker {
    const { toolUs, slots } = this.#size;
    const { perGroup, perCall } = this.#costs.worker;
    // What takes no time is started and ended in one go.
    const half = toolUs === 0 ? { perGroup: 0, perCall: 0 } : { perGroup, perCall: perCall / 2 };
    const rest = { perGroup, perCall: perCall - half.perCall };
    const ends = new Gathered(process, rest, (group) => this.#ended(worker, group));
    const starts = new Gathered(process, half, (group) => {
      if (toolUs === 0) ends.add(group);
      else this.#agenda.at(this.#agenda.nowUs + toolUs, () => ends.add(group));
    });
    const worker = { process, starts, ends, free: slots };
    return worker;
  }

  #send(arrive: () => void): void {
    this.#agenda.at(this.#agenda.nowUs + this.#size.networkUs, arrive);
  }

  #script(shard: Shard, calls: number, done: () => void): void {
    const { perGroup, perCall } = this.#costs.redis;
    shard.node.work(perGroup + perCall * calls, done);
  }

  /** Idle workers get calls at once; others wait in the shard's queue. */
  #claimed(shard: Shard, group: readonly Call[]): void {
    const taken = new Map<Worker, Call[]>();
    for (const call of group) {
      const worker = this.#idleWorker();
      if (worker === undefined) shard.queue.push(call);
      else this.#give(worker, call, taken);
    }
    this.#dispatch(taken);
  }

  #idleWorker(): Worker | undefined {
    for (let tried = 0; tried < this.#workers.length; tried += 1) {
      const worker = this.#workers[this.#nextWorker] as Worker;
      if (worker.free > 0) return worker;
      this.#nextWorker = (this.#nextWorker + 1) % this.#workers.length;
    }
    return undefined;
  }

  #give(worker: Worker, call: Call, taken: Map<Worker, Call[]>): void {
    worker.free -= 1;
    call.givenUs = this.#agenda.nowUs;
    const calls = taken.get(worker);
    if (calls === undefined) taken.set(worker, [call]);
    else calls.push(call);
  }

  #dispatch(taken: ReadonlyMap<Worker, readonly Call[]>): void {
    for (const [worker, calls] of taken) this.#send(() => worker.starts.add(calls));
  }

  /** One script for each shard: it ends calls, and takes the next from the queue. */
  #ended(worker: Worker, group: readonly Call[]): void {
    this.#record(worker.process, group.length);
    for (const [shard, calls] of Map.groupBy(group, ({ shard }) => shard))
      this.#send(() =>
        this.#script(shard, calls.length, () => {
          for (const call of calls) this.#slotsUs += this.#agenda.nowUs - call.givenUs;
          worker.free += calls.length;
          const taken = new Map<Worker, Call[]>();
          for (const call of shard.queue.splice(0, worker.free)) this.#give(worker, call, taken);
          this.#dispatch(taken);
          for (const [producer, own] of Map.groupBy(calls, (call) => call.producer))
            this.#send(() => this.#answers.get(producer)?.(own));
        }),
      );
  }

  /** With one shard the scripts take the records along; their cost is that of the scripts. */
  #record(process: Process, calls: number): void {
    if (this.#size.shards === 1) return;
    if (process.records === 0 && !process.sending)
      this.#agenda.at(this.#agenda.nowUs + GATHER_US, () => this.#sendRecords(process));
    process.records += calls;
  }

  /** One group at a time: what comes meanwhile is the next one. */
  #sendRecords(process: Process): void {
    const { perGroup, perCall } = this.#costs.audit;
    const records = process.records;
    process.records = 0;
    process.sending = records > 0;
    if (records === 0) return;
    this.#send(() =>
      this.#audit.work(perGroup + perCall * records, () => this.#send(() => this.#sendRecords(process))),
    );
  }
}
