/** One process of a stack: forked, so that it ends with the rig, and killed when the row ends. */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { within } from '../helpers/signal.ts';
import { clearedAtExit } from './remains.ts';

export interface Child extends AsyncDisposable {
  readonly pid: number;
  readonly process: ChildProcess;
  readonly ended: Promise<void>;
  readonly alive: boolean;
  /** kill -9, and waits for the end. */
  kill(): Promise<void>;
  signal(signal: NodeJS.Signals): void;
}

/** Generous: a machine that is short of time is no fault of the stack. */
const START_MS = 300_000;

/** The process ended before it was ready. */
export class EarlyEnd extends Error {}

/** Resolves when the process says that it is ready. */
export async function startChild(script: string, env: Readonly<Record<string, string>>): Promise<Child> {
  const clean = Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST') && name !== 'NODE_OPTIONS');
  const file = fileURLToPath(new URL(`fixtures/${script}.ts`, import.meta.url));
  const child = fork(file, { env: { ...Object.fromEntries(clean), ...env }, execArgv: [], stdio: 'pipe' });
  const release = clearedAtExit(() => void child.kill('SIGKILL'));
  let alive = true;
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (bytes: Buffer) => {
      said = `${said}${bytes.toString()}`.slice(-4_096);
    });
  const ended = new Promise<void>((resolve) =>
    child.once('close', () => {
      alive = false;
      release();
      resolve();
    }),
  );
  const kill = () => {
    child.kill('SIGKILL');
    return ended;
  };
  const ready = new Promise<void>((resolve) => child.once('message', () => resolve()));
  const early = ended.then(() => Promise.reject(new EarlyEnd(`${script} ended before it was ready: ${said}`)));
  early.catch(() => {});
  try {
    await within(Promise.race([ready, early]), START_MS, script);
  } catch (error) {
    await kill();
    throw error;
  }
  return {
    pid: child.pid ?? 0,
    process: child,
    ended,
    get alive() {
      return alive;
    },
    kill,
    signal: (signal) => void child.kill(signal),
    [Symbol.asyncDispose]: kill,
  };
}
