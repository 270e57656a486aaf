/** The `pawl` command on a world of its own, in a folder of its own outside the checkout. */
import { cpSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startPawl, type TestProcess } from '../helpers/process.ts';
import { createWorld, type World } from '../helpers/world.ts';

const FIXTURES = fileURLToPath(new URL('./fixtures/', import.meta.url));

export interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Place extends AsyncDisposable {
  readonly world: World;
  /** Holds `tools.ts`, copied from the fixtures. */
  readonly folder: string;
  start(args: readonly string[], env?: Readonly<Record<string, string | undefined>>): TestProcess;
  run(
    args: readonly string[],
    options?: { readonly env?: Readonly<Record<string, string | undefined>>; readonly input?: string },
  ): Promise<Finished>;
  /** Starts `pawl worker` with the fixtures' tools and waits until it is ready. */
  worker(env?: Readonly<Record<string, string | undefined>>): Promise<TestProcess>;
}

/** Dispose of it when the tests are over. */
export async function openPlace(): Promise<Place> {
  const world = await createWorld();
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'pawl-cli-')));
  for (const name of ['tools.ts', 'greeting.ts']) cpSync(join(FIXTURES, name), join(folder, name));
  const base = { REDIS_URL: world.redisUrl, PAWL_PREFIX: world.prefix, LOG_LEVEL: undefined, NODE_ENV: undefined };
  const start: Place['start'] = (args, env = {}) => startPawl(args, { cwd: folder, env: { ...base, ...env } });
  return {
    world,
    folder,
    start,
    run: async (args, { env = {}, input } = {}) => {
      const pawl = start(args, env);
      if (input !== undefined) pawl.say(input);
      pawl.endInput();
      const { code } = await pawl.ended;
      return { code, stdout: pawl.stdout(), stderr: pawl.stderr() };
    },
    worker: async (env = {}) => {
      const worker = start(['worker', '--tools', 'tools.ts', '--json'], env);
      await worker.line('"event":"ready"');
      return worker;
    },
    [Symbol.asyncDispose]: async () => {
      await world.dispose();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
