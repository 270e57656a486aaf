/** Where a side keeps its calls: Redis, or what another system runs on. */
import { readdir, readFile } from 'node:fs/promises';
import { sum } from '../statistics.ts';

/** What a crash of the machine may lose: about the last second, or nothing that was answered. */
export type Durability = 'each second' | 'each write';

export interface Store {
  readonly url: string;
  /** Its name and version. */
  readonly title: string;
  /** User and system time since the store started. */
  cpuMs(): Promise<number>;
  /** Bytes that it has written to its log since it started, or since it was tidied. */
  fileBytes(): Promise<number>;
  /**
   * Does what the store does to its files every now and then, and waits for that. Where it can be told so, it does not by
   * itself: it would fall on whichever side is being measured, whatever side filled the files.
   */
  tidy(): Promise<void>;
  stop(): Promise<void>;
}

/** Stops a store when its use is over, however that ends. */
export async function withStore<S extends Store, T>(started: Promise<S>, use: (store: S) => Promise<T>): Promise<T> {
  const store = await started;
  try {
    return await use(store);
  } finally {
    await store.stop();
  }
}

/** Linux counts CPU time in these. */
const TICKS_PER_SECOND = 100;

/** CPU time of a process and all its children, those included that it has outlived. Linux only. */
export async function processTreeCpuMs(pid: number): Promise<number> {
  const names = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const all = (await Promise.all(names.map((name) => readStat(name)))).filter((one) => one !== undefined);
  const tree = all.filter((one) => one.pid === pid || one.parent === pid);
  return (1_000 / TICKS_PER_SECOND) * sum(tree.map((one) => one.ticks + (one.pid === pid ? one.endedTicks : 0)));
}

interface Stat {
  readonly pid: number;
  readonly parent: number;
  readonly ticks: number;
  /** Of children that have ended. */
  readonly endedTicks: number;
}

async function readStat(name: string): Promise<Stat | undefined> {
  let text: string;
  try {
    text = await readFile(`/proc/${name}/stat`, 'utf8');
  } catch {
    // It has ended meanwhile.
    return undefined;
  }
  // The program's name, in brackets, may hold anything; numbers follow it.
  const fields = text
    .slice(text.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number);
  const field = (number: number) => fields[number - 3] ?? 0;
  return {
    pid: Number(name),
    parent: field(4),
    ticks: field(14) + field(15),
    endedTicks: field(16) + field(17),
  };
}

/** What a process has written to files, as Linux counts it. */
export async function processIoBytes(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/io`, 'utf8');
  return Number(/^write_bytes: (\d+)$/m.exec(text)?.[1]);
}
