/**
 * What the benchmark asks of its processes, and what they answer. Questions and answers travel over Node's IPC channel.
 */

/** Passed to a process as its only argument, in JSON. */
export interface ProcessOptions {
  readonly redisUrl: string;
  /** Key prefix; producers and workers of one side share it. */
  readonly prefix: string;
  /** How long Pawl's records of finished calls live. */
  readonly ttlMs: number;
  /** Calls at a time in the worker. */
  readonly concurrency: number;
}

export interface Load {
  /** Calls at a time in this producer. */
  readonly inFlight: number;
  /** Size of each call's result. */
  readonly resultBytes: number;
  /** `repeated` calls the same few keys again and again, so that nearly all answers are replays. */
  readonly keys: 'fresh' | 'repeated';
  /** New calls are made for this long, or until this many are made; those in flight are waited for. */
  readonly until: { readonly durationMs: number } | { readonly calls: number };
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
}

export interface RefusalReport {
  readonly calls: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

export interface Questions {
  load: { readonly asked: Load; readonly answered: LoadReport };
  /** With `collect`, garbage is collected first, where the process was started so that it can be. */
  usage: { readonly asked: { readonly collect: boolean }; readonly answered: Usage };
  /** Opens a tool's circuit by making it fail, then times the refusals. */
  refusals: { readonly asked: { readonly calls: number }; readonly answered: RefusalReport };
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
