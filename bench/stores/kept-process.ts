/** A server as a child process that ends with us, however we end. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { createInterface } from 'node:readline';

export interface KeptProcess {
  readonly pid: number;
  /** Sends its signal and waits until it has ended. */
  stop(): Promise<void>;
}

/** The shell tells the server's process number, and reads from a pipe that ends when we do. */
const KEEPER = 'signal=$1; shift; "$@" </dev/null >&2 & echo $!; read -r _; kill -s "$signal" $!; wait $!';

export async function startKept(
  command: readonly string[],
  options: {
    readonly stopSignal: 'INT' | 'TERM';
    readonly logFile: string;
    readonly env?: Readonly<Record<string, string>>;
    readonly uid?: number;
    readonly gid?: number;
  },
): Promise<KeptProcess> {
  const { stopSignal, logFile, env, ...user } = options;
  const log = openSync(logFile, 'a');
  // A session of its own, so that Ctrl-C reaches us first.
  const keeper = spawn('sh', ['-c', KEEPER, 'keeper', stopSignal, ...command], {
    ...user,
    env: { ...process.env, ...env },
    stdio: ['pipe', 'pipe', log],
    detached: true,
  });
  closeSync(log);
  const { stdin, stdout } = keeper;
  if (stdin === null || stdout === null) throw new Error('the keeper has no pipes');
  const exited = once(keeper, 'exit');
  const [line] = (await once(createInterface(stdout), 'line')) as [string];
  return {
    pid: Number(line),
    stop: async () => {
      stdin.end();
      await exited;
    },
  };
}
