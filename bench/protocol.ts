/**
 * What the benchmark asks of its processes, and what they answer. Questions and answers travel over Node's IPC channel.
 */

/** Passed to a process as its only argument, in JSON. */
export interface ProcessOptions {
  /** Where the side's store is. */
  readonly storeUrl: string;
  /** Key prefix; producers and workers of one side share it. */
  readonly prefix: string;
  /** How long Pawl's records of finished calls live. */
  readonly ttlMs: number;
  /** Calls at a time in the worker. */
  readonly concurrency: number;
  /** Finished jobs, and events, that the hand-written side keeps. */
  readonly kept: number;
}

/** So many calls at a time in this producer, until the time is over or so many were made; those in flight are waited for. */
export interface Lanes {
  readonly inFlight: number;
  readonly until: { readonly durationMs: number } | { readonly calls: number };
}

/** Calls start at fixed times, whatever is still in flight. A call's latency counts from when it should have started. */
export interface FixedRate {
  readonly perSecond: number;
  readonly durationMs: number;
}

export interface Load {
  readonly pace: Lanes | FixedRate;
  /** Size of each call's result. */
  readonly resultBytes: number;
  /**
   * `repeated` calls the same few keys again and again, so that nearly all answers are replays; `same` calls one key, which
   * all producers of a round share.
   */
  readonly keys: 'fresh' | 'repeated' | 'same';
  /** The producer makes its calls as batches or plans of this kind. Default: one by one. */
  readonly together?: 'batch' | 'plan' | 'references' | 'each' | 'chain';
  /** One by one, with the parameters of the calls of such a batch or plan. */
  readonly alike?: Load['together'];
  /** How long the tool takes. Default: it answers at once. */
  readonly toolMs?: number;
  readonly sharedKey: string;
  /** Wall-clock time at which all producers of a round start together. */
  readonly startAtMs: number;
}

export interface LoadReport {
  readonly calls: number;
  readonly elapsedMs: number;
  /** User and system time of this process. */
  readonly cpuMs: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

export interface Usage {
  /** Since the process started. */
  readonly cpuMs: number;
  readonly rssBytes: number;
  readonly heapBytes: number;
  /** Of a worker: how often its tool has run. */
  readonly runs: number;
}

export interface RefusalReport {
  /** One at a time. */
  readonly calls: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  /** Many at once. */
  readonly bulkCalls: number;
  readonly bulkPerSecond: number;
}

/** How much later than asked for the tools of delayed calls began. */
export interface LatenessReport {
  readonly calls: number;
  readonly early: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

/** A call of a session that is measured for how long it waits, in wall-clock milliseconds. */
export interface Turn {
  readonly calledAtMs: number;
  /** When its tool began to run. */
  readonly startedAtMs: number;
  /** CPU time of its worker until then. */
  readonly cpuMs: number;
}

export interface Questions {
  load: { readonly asked: Load; readonly answered: LoadReport };
  /** With `collect`, garbage is collected first, where the process was started so that it can be. */
  usage: { readonly asked: { readonly collect: boolean }; readonly answered: Usage };
  /** Of a producer: hands in calls of a tool that takes so long, and waits for none of them. */
  fill: {
    readonly asked: { readonly calls: number; readonly toolMs: number; readonly startAfterMs?: number };
    readonly answered: { readonly elapsedMs: number };
  };
  /** Of a producer: calls one at a time, for a while or so many. */
  turns: { readonly asked: Lanes['until']; readonly answered: readonly Turn[] };
  /** Of a worker: when the runs with these numbers, from 1, began. */
  'run-times': {
    readonly asked: { readonly numbers: readonly number[] };
    readonly answered: readonly (number | null)[];
  };
  /** Of a worker: for each span, how many runs began within it. */
  'runs-between': { readonly asked: { readonly spans: readonly Turn[] }; readonly answered: readonly number[] };
  /** Of a producer: delays so many calls, whose starts are spread over a time. */
  lateness: {
    readonly asked: { readonly calls: number; readonly aheadMs: number; readonly spreadMs: number };
    readonly answered: LatenessReport;
  };
  /** Makes a tool fail until its circuit is open. */
  'open-circuit': { readonly asked: Readonly<Record<string, never>>; readonly answered: null };
  /** Times the refusals of that tool's calls: so many one at a time, then many at once for a while. */
  refusals: {
    readonly asked: { readonly calls: number; readonly bulkMs: number };
    readonly answered: RefusalReport;
  };
  stop: { readonly asked: Readonly<Record<string, never>>; readonly answered: null };
}
export type Topic = keyof Questions;

export interface Question {
  readonly id: number;
  readonly topic: Topic;
  readonly asked: Questions[Topic]['asked'];
}

export type Message =
  | { readonly type: 'ready' }
  | { readonly type: 'answer'; readonly id: number; readonly answered: Questions[Topic]['answered'] }
  | { readonly type: 'error'; readonly id: number; readonly message: string };
