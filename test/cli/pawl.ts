/** The `pawl` command on a world of its own, in a folder of its own outside the checkout. */
import { cpSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { environmentWith, type ProcessOptions, startPawl, startScript, type TestProcess } from '../helpers/process.ts';
import { createWorld, type World } from '../helpers/world.ts';
import { asciiJson } from './fixtures/ascii-json.ts';
import type { Order, Place } from './fixtures/command-host.ts';

const FIXTURES = fileURLToPath(new URL('./fixtures/', import.meta.url));
const HOST = new URL('./fixtures/command-host.ts', import.meta.url);
/** They answer signals, and leave the end of their process to its launcher. */
const LONG_LIVED: ReadonlySet<string> = new Set(['worker', 'up', 'serve', 'mcp', 'demo']);

export interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliFixture extends AsyncDisposable {
  readonly world: World;
  /** Holds `tools.ts`, copied from the fixtures. */
  readonly folder: string;
  /** A process of its own. */
  start(args: readonly string[], env?: Readonly<Record<string, string | undefined>>): TestProcess;
  /** Waits for its end. Commands that end by themselves share the processes of command hosts. */
  run(
    args: readonly string[],
    options?: { readonly env?: Readonly<Record<string, string | undefined>>; readonly input?: string },
  ): Promise<Finished>;
  /** Starts `pawl worker` with the fixtures' tools and waits until it is ready. */
  worker(env?: Readonly<Record<string, string | undefined>>): Promise<TestProcess>;
}

/** Dispose of it when the tests are over. */
export async function openPlace(): Promise<CliFixture> {
  const world = await createWorld();
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'pawl-cli-')));
  for (const name of ['tools.ts', 'greeting.ts']) cpSync(join(FIXTURES, name), join(folder, name));
  const base = { REDIS_URL: world.redisUrl, PAWL_PREFIX: world.prefix, LOG_LEVEL: undefined, NODE_ENV: undefined };
  const start: CliFixture['start'] = (args, env = {}) => startPawl(args, { cwd: folder, env: { ...base, ...env } });
  return {
    world,
    folder,
    start,
    run: async (args, { env = {}, input } = {}) => {
      if (!LONG_LIVED.has(args[0] ?? ''))
        return hostFor({ folder, environment: environmentWith({ ...base, ...env }) }).run(args, input);
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

/** Runs a command that ends by itself in a folder, in a process that has loaded the commands. */
export function runInHost(args: readonly string[], env: ProcessOptions['env'], folder: string): Promise<Finished> {
  return hostFor({ folder, environment: environmentWith(env) }).run(args);
}

/** The command hosts of this test process: all of its files use them, one after the other. */
const hosts = new Set<CommandHost>();

/** Commands with the same folder and environment run together, others one after the other, or in another process. */
function hostFor(place: Place): CommandHost {
  const name = JSON.stringify(place);
  const all = [...hosts];
  const host = all.find((each) => each.place === name) ?? all.find((each) => each.isIdle) ?? new CommandHost();
  host.place = name;
  return host;
}

class CommandHost {
  readonly #process = startScript(HOST, [], { outlivesTest: true });
  #orders = 0;
  #running = 0;
  /** The folder and the environment of the commands that run here. */
  place = '';

  constructor() {
    hosts.add(this);
    void this.#process.ended.then(() => hosts.delete(this));
  }

  get isIdle(): boolean {
    return this.#running === 0;
  }

  async run(args: readonly string[], input = ''): Promise<Finished> {
    this.#orders += 1;
    this.#running += 1;
    const order: Order = { id: this.#orders, place: JSON.parse(this.place) as Place, args, input };
    this.#process.say(asciiJson(order));
    try {
      return JSON.parse(await this.#process.line(`{"id":${order.id},`)) as Finished;
    } finally {
      this.#running -= 1;
    }
  }
}

/** The ID of the call that a session has running. */
export async function runningCall(worker: TestProcess, sessionKey: string): Promise<string> {
  const line = await worker.line(new RegExp(`"tool_call_start".*"sessionKey":"${sessionKey}"`));
  return (JSON.parse(line) as { callId: string }).callId;
}
