/**
 * Everything that the demo needs, in one temporary folder: a private Redis, workers, a service, a session, and what it counts.
 */
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { CallOptions } from '../../src/producer/calls/call-envelope.ts';
import { Pawl } from '../../src/producer/client.ts';
import type { Session } from '../../src/producer/sessions/session.ts';
import type { ToolResultEnvelope } from '../../src/shared/calls/envelope.ts';
import type { Settings } from '../../src/shared/config/config.ts';
import { resolveSettings } from '../../src/shared/config/resolve-settings.ts';
import type { Logger } from '../../src/shared/telemetry/log.ts';
import type { AnyTool, InputOf, OutputOf } from '../../src/shared/tools/tool.ts';
import { isSandboxMissing } from '../../src/workers/context/processes.ts';
import { Mismatch } from './assertions.ts';
import { Fleet } from './fleet.ts';
import { Service } from './service.ts';
import type { Table } from './table.ts';
import { type DemoTools, demoTools, type EffectLine, type InvoiceLine, type Shop } from './tools.ts';
import { DEADLINE_MS, until, within } from './wait.ts';

/** The variables of the user's environment that programs need. `REDIS_URL` and Pawl's own settings must not reach the demo. */
const PASSED_ON = /^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_.*|TZ|TMPDIR|TEMP|TMP|SYSTEMROOT|XDG_CACHE_HOME)$/i;
/** A killed worker is noticed after this long. A busy machine delays a live worker by less. */
const LOCK_MS = 3_000;
const STALLED_MS = 500;
const WORKERS = 3;

/** One call of the story. */
export interface Part<T extends AnyTool> {
  readonly tool: T;
  readonly params: InputOf<T>;
  /** Default: the main session. */
  readonly by?: Session;
  readonly options?: CallOptions;
  /** Shown while the call runs. */
  readonly doing: string;
  /** Called as soon as the call has its ID. */
  readonly onQueued?: (callId: string) => void;
  /** The end of the call in one word, if it is not the usual one. */
  readonly word?: string;
  /** Checks the result, throws a `Mismatch` if it is wrong, and says in plain words what happened and why. */
  ended(result: ToolResultEnvelope<OutputOf<T>>, tookMs: number): string | Promise<string>;
}

export interface Summary {
  readonly calls: number;
  readonly effects: { readonly filesChanged: number; readonly invoicesSent: number; readonly documentsIndexed: number };
  /** Calls that got another call's result, or were refused because they contradict it. */
  readonly duplicatesPrevented: number;
  readonly retries: number;
  readonly workerKills: number;
}

export class Stage {
  readonly folder: string;
  readonly workspace: string;
  readonly table: Table;
  readonly tools: DemoTools;
  readonly #shop: Shop;
  readonly #settings: Settings;
  readonly #log: Logger;
  readonly #service: Service;
  readonly #fleet: Fleet;
  readonly #clients: Pawl[] = [];
  readonly #counts = { calls: 0, filesChanged: 0, duplicatesPrevented: 0, retries: 0, workerKills: 0 };
  #main: Session | undefined;

  /** Starts all of it. On failure everything is taken down again. */
  static async open(table: Table, environment: NodeJS.ProcessEnv): Promise<Stage> {
    const folder = await realpath(await mkdtemp(join(tmpdir(), 'pawl-demo-')));
    const service = await Service.open();
    // The demo runs two known programs, so its workers may do without a sandbox if this machine has none.
    const isOff = await isSandboxMissing('preferred');
    if (isOff)
      table.line('  no sandbox works here (pawl doctor): the demo runs its own programs with PAWL_SANDBOX=off');
    const sandbox = isOff ? { PAWL_SANDBOX: 'off' } : {};
    const stage = new Stage(folder, table, service, { environment, sandbox });
    try {
      await stage.#start();
    } catch (error) {
      await stage.close().catch(() => {});
      throw error;
    }
    return stage;
  }

  private constructor(
    folder: string,
    table: Table,
    service: Service,
    { environment, sandbox }: { readonly environment: NodeJS.ProcessEnv; readonly sandbox: Record<string, string> },
  ) {
    this.folder = folder;
    this.workspace = join(folder, 'workspace');
    this.table = table;
    this.#service = service;
    const dataDir = join(folder, 'data');
    this.#settings = resolveSettings({
      options: { dataDir, lockDurationMs: LOCK_MS, stalledIntervalMs: STALLED_MS, logLevel: 'silent' },
    });
    const say = (_: object, message: string) => {
      if (message.startsWith('starting') || message.includes('download') || message.includes('fetch'))
        table.line(`  ${message}`);
    };
    this.#log = { debug: () => {}, info: say, warn: say, error: say };
    this.#shop = {
      serviceUrl: service.url,
      ledgerFile: join(folder, 'invoices.jsonl'),
      effectsFile: join(folder, 'effects.jsonl'),
    };
    this.tools = demoTools(this.#shop);
    const skipped = Object.entries(environment).filter(([name, value]) => value !== undefined && PASSED_ON.test(name));
    this.#fleet = new Fleet({
      folder,
      shop: this.#shop,
      environment: {
        ...(Object.fromEntries(skipped) as Record<string, string>),
        ...sandbox,
        PAWL_DATA_DIR: dataDir,
        PAWL_LOCK_DURATION_MS: String(LOCK_MS),
        PAWL_STALLED_INTERVAL_MS: String(STALLED_MS),
        PAWL_ALLOWED_HOSTS: service.host,
        LOG_LEVEL: 'error',
      },
    });
  }

  async #start(): Promise<void> {
    await mkdir(this.workspace);
    const pawl = await this.client();
    await Promise.all(Array.from({ length: WORKERS }, () => this.#fleet.start()));
    this.#main = await pawl.openSession({ kind: 'main', actorId: 'demo', workspaceRoot: this.workspace });
  }

  /** A further client with connections of its own, as another process would have. */
  async client(): Promise<Pawl> {
    const pawl = await Pawl.open({
      settings: this.#settings,
      log: this.#log,
      defaultWorkspaceRoot: this.workspace,
      onEvent: (event) => {
        if (event.type === 'accepted' && event.answer !== 'claimed') this.#counts.duplicatesPrevented += 1;
      },
    });
    this.#clients.push(pawl);
    return pawl;
  }

  get pawl(): Pawl {
    const [first] = this.#clients;
    if (first === undefined) throw new Error('The demo has no client yet.');
    return first;
  }

  get session(): Session {
    if (this.#main === undefined) throw new Error('The demo has no session yet.');
    return this.#main;
  }

  get service(): Service {
    return this.#service;
  }

  get fleet(): Fleet {
    return this.#fleet;
  }

  /** Invoices that were really sent. */
  invoices(): readonly InvoiceLine[] {
    return linesOf<InvoiceLine>(this.#shop.ledgerFile);
  }

  /** The recorded side effects of a tool. */
  effects(tool: string, event: EffectLine['event']): readonly EffectLine[] {
    return linesOf<EffectLine>(this.#shop.effectsFile).filter((line) => line.tool === tool && line.event === event);
  }

  /** Makes a call, shows it as a row, and checks how it ended. */
  async call<T extends AnyTool>(part: Part<T>): Promise<ToolResultEnvelope<OutputOf<T>>> {
    const { tool, params, doing, by = this.session, options = {} } = part;
    const row = this.table.row(tool.name, doing);
    this.#counts.calls += 1;
    const startedAtMs = performance.now();
    const unfollow = this.#follow(by, doing, row.update, part.onQueued);
    try {
      const result = await within(`${tool.name} to end`, by.call(tool, params, options), DEADLINE_MS);
      const tookMs = performance.now() - startedAtMs;
      const text = await part.ended(result, tookMs);
      const didRun = !result.fromCache && result.attempts > 0;
      if (didRun) this.#count(result);
      row.end({
        word: part.word ?? wordOf(result),
        isSuccess: result.status === 'success',
        workers: didRun ? await this.#workersOf(result.callId) : [],
        attempts: didRun ? result.attempts : 0,
        durationMs: tookMs,
        text,
        facts: {
          callId: result.callId,
          status: result.status,
          code: result.error?.code,
          fromCache: result.fromCache,
          attempts: result.attempts,
          tookMs: Math.round(tookMs * 10) / 10,
        },
      });
      return result;
    } catch (error) {
      if (error instanceof Mismatch) row.wrong(error.message);
      throw error;
    } finally {
      unfollow();
    }
  }

  #count({ retriedBy = [], output }: ToolResultEnvelope): void {
    // A call of a killed worker is recovered, which is not a retry.
    this.#counts.retries += retriedBy.filter(({ reasonCode }) => reasonCode !== 'LEASE_LOST').length;
    const artifacts = output?.metadata?.['artifacts'];
    this.#counts.filesChanged += Array.isArray(artifacts) ? artifacts.length : 0;
  }

  summary(): Summary {
    const { calls, filesChanged, duplicatesPrevented, retries, workerKills } = this.#counts;
    const effects = {
      filesChanged,
      invoicesSent: this.invoices().length,
      documentsIndexed: this.service.indexed.length,
    };
    return { calls, effects, duplicatesPrevented, retries, workerKills };
  }

  #follow(
    session: Session,
    doing: string,
    update: (text: string) => void,
    onQueued: ((callId: string) => void) | undefined,
  ): () => void {
    let callId: string | undefined;
    const { events } = session;
    const queued = (event: { readonly callId: string }) => {
      callId ??= event.callId;
      onQueued?.(event.callId);
      events.off('queued', queued);
    };
    const retrying = (event: { readonly callId: string; readonly attempt: number; readonly reasonCode: string }) => {
      if (event.callId === callId) update(`${doing} · try ${event.attempt} failed (${event.reasonCode}), trying again`);
    };
    const progress = (event: { readonly callId: string; readonly progress: number; readonly total?: number }) => {
      if (event.callId === callId) update(`${doing} · ${event.progress} of ${event.total ?? '?'}`);
    };
    events.on('queued', queued).on('retrying', retrying).on('progress', progress);
    return () => void events.off('queued', queued).off('retrying', retrying).off('progress', progress);
  }

  async #workersOf(callId: string | undefined): Promise<readonly (number | undefined)[]> {
    const record = callId === undefined ? undefined : await this.pawl.read(callId);
    return record?.attempts.map(({ worker }) => this.#fleet.numberOf(worker)) ?? [];
  }

  /** kill -9 for the worker that runs a call, and a new worker in its place. */
  async killAndReplace(pid: number): Promise<void> {
    const killed = await this.#fleet.kill(pid);
    this.#counts.workerKills += 1;
    this.table.note(`kill -9 ${pid}: worker ${killed.number} is gone in the middle of the call`);
    const { number } = await this.#fleet.start();
    this.table.note(`worker ${number} is started in its place`);
  }

  /** Takes everything down, and makes sure that nothing is left. Safe to call twice. */
  async close(): Promise<void> {
    await this.#fleet.close();
    await Promise.all(this.#clients.map((client) => client.close()));
    await this.#service.close();
    // The supervisor of Redis removes this file last. Until then it still writes into the folder.
    const endpoint = join(this.#settings.dataDir, 'redis', 'endpoint.json');
    await until('the private Redis to end', () => !existsSync(endpoint));
    await rm(this.folder, { recursive: true, force: true, maxRetries: 3 });
  }
}

function wordOf(result: ToolResultEnvelope): string {
  if (result.status === 'success') return 'ok';
  if (result.status === 'circuit_open') return 'refused';
  return result.error.code === 'OUTCOME_UNKNOWN' ? 'unknown' : 'error';
}

function linesOf<T>(file: string): readonly T[] {
  if (!existsSync(file)) return [];
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as T);
}
