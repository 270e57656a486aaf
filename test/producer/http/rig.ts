/** A whole way for HTTP tests: a server, its producer and a worker, in a world of their own. */
import { request as httpRequest } from 'node:http';
import { onTestFinished } from 'vitest';
import { z } from 'zod';
import { type Board, openBoard } from '../../../src/cli/processes/bull-board.ts';
import { Pawl } from '../../../src/producer/client.ts';
import { BOARD_PATH, type HttpServer, startHttpServer } from '../../../src/producer/http/server.ts';
import { FleetView } from '../../../src/producer/operations/fleet-metrics.ts';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import type { Settings, SettingsInput } from '../../../src/shared/config/config.ts';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import { ToolError } from '../../../src/shared/errors/failure.ts';
import type { Logger } from '../../../src/shared/telemetry/log.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { AnyTool, Tier } from '../../../src/shared/tools/tool.ts';
import { ToolWorker } from '../../../src/workers/worker.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { eventually, type Signal, signal } from '../../helpers/signal.ts';
import { createWorld, type World } from '../../helpers/world.ts';
import { checkShape } from './answer-shapes.ts';

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers whose shape they state themselves.
  readonly body: any;
  readonly text: string;
}

export interface AskOptions {
  readonly method?: string;
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Sent as it is. */
  readonly raw?: string | Uint8Array<ArrayBuffer>;
  readonly signal?: AbortSignal;
}

export interface Rig {
  readonly world: World;
  readonly settings: Settings;
  readonly pawl: Pawl;
  readonly server: HttpServer;
  readonly board: Board;
  readonly logged: readonly { readonly level: string; readonly fields: object; readonly message: string }[];
  ask(path: string, options?: AskOptions): Promise<Answer>;
  /** `POST /v1/calls`. */
  call(json: unknown, options?: AskOptions & { readonly wait?: number | string }): Promise<Answer>;
}

export interface RigOptions {
  readonly tools?: readonly AnyTool[];
  /** Of its worker. */
  readonly tiers?: readonly Tier[];
  readonly settings?: Partial<SettingsInput>;
  readonly hooks?: readonly Hook[];
  /** Default: the world's Redis. */
  readonly redisUrl?: string;
}

export async function startRig(options: RigOptions = {}): Promise<Rig> {
  const world = await createWorld();
  const common = { prefix: world.prefix, workspaceRoot: temporaryFolder(), ...options.settings };
  const settings = resolveSettings({ options: { redisUrl: options.redisUrl ?? world.redisUrl, ...common } });
  const logged: { level: string; fields: object; message: string }[] = [];
  const level = (name: string) => (fields: object, message: string) =>
    void logged.push({ level: name, fields, message });
  const log: Logger = { debug: () => {}, info: level('info'), warn: level('warn'), error: level('error') };
  if (options.tools !== undefined) {
    const workerSettings = resolveSettings({ options: { redisUrl: world.redisUrl, ...common } });
    await startTestWorker(workerSettings, options.tools, log, options.tiers);
  }
  const pawl = await Pawl.open({
    settings,
    log,
    defaultWorkspaceRoot: process.cwd(),
    ...(options.hooks === undefined ? {} : { hooks: options.hooks }),
  });
  onTestFinished(() => pawl.close());
  const board = openBoard({
    settings,
    redisUrl: pawl.backend.url,
    redis: pawl.backend.redis,
    shards: pawl.backend.shards,
    basePath: BOARD_PATH,
    log,
  });
  onTestFinished(() => board.close());
  const fleet = new FleetView(pawl, { cacheMs: 0 });
  const server = await startHttpServer({ pawl, settings, log, port: 0, board: board.router, fleet });
  onTestFinished(() => server.close());
  if (options.tools !== undefined)
    await eventually(async () => (await pawl.catalogue()).tools.length === options.tools?.length, {
      what: 'the tools',
    });
  const ask = (path: string, asked?: AskOptions) => askServer(server.url, path, asked);
  return {
    world,
    settings,
    pawl,
    server,
    board,
    logged,
    ask,
    call: (json, { wait, ...asked } = {}) =>
      ask(`/v1/calls${wait === undefined ? '' : `?wait=${wait}`}`, { method: 'POST', json, ...asked }),
  };
}

export async function startTestWorker(
  settings: Settings,
  tools: readonly AnyTool[],
  log: Logger,
  tiers: readonly Tier[] = ['read-only', 'workspace'],
): Promise<ToolWorker> {
  const worker = await ToolWorker.start({
    settings,
    tools,
    tiers,
    concurrency: 8,
    log,
    environment: {},
  });
  onTestFinished(() => worker.close(0));
  return worker;
}

export async function askServer(url: string, path: string, options: AskOptions = {}): Promise<Answer> {
  const { method = 'GET', token, json, raw, headers = {}, signal: abort } = options;
  const body = raw ?? (json === undefined ? undefined : JSON.stringify(json));
  const response = await fetch(`${url}${path}`, {
    method,
    redirect: 'manual',
    headers: {
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...headers,
    },
    ...(body === undefined ? {} : { body }),
    ...(abort === undefined ? {} : { signal: abort }),
  });
  const text = await response.text();
  const isJson = response.headers.get('content-type')?.startsWith('application/json') === true;
  const answer = isJson ? JSON.parse(text) : undefined;
  if (isJson) checkShape(method, path, response.status, answer);
  return { status: response.status, headers: response.headers, text, body: answer };
}

/** A GET whose every header is given by hand, `Host` included. */
export function rawGet(url: string, headers: Readonly<Record<string, string>>): Promise<number> {
  return new Promise((resolve, reject) => {
    httpRequest(url, { headers, agent: false }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode ?? 0));
    })
      .on('error', reject)
      .end();
  });
}

/** The tools of these tests; `started` and `release` are the two ends of `hold`. */
export function testTools(): {
  readonly tools: readonly AnyTool[];
  readonly started: Signal;
  readonly release: Signal;
  runs(): number;
} {
  const started = signal();
  const release = signal();
  let runs = 0;
  const echo = defineTool({
    name: 'echo',
    version: '1.0.0',
    description: 'Returns its text.',
    tier: 'workspace',
    effects: 'idempotent',
    input: z.object({ text: z.string() }),
    run: ({ text }) => {
      runs += 1;
      return { output: { text, run: runs }, display: text };
    },
  });
  const hold = defineTool({
    name: 'hold',
    version: '1.0.0',
    description: 'Waits until the test lets it go.',
    tier: 'read-only',
    input: z.object({}),
    async run(_params, ctx) {
      started.fire();
      const aborted = new Promise<never>((_resolve, reject) => {
        ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason as Error), { once: true });
      });
      await Promise.race([release.promise, aborted]);
      return { output: 'held' };
    },
  });
  const fail = defineTool({
    name: 'fail',
    version: '1.0.0',
    description: 'Fails for good.',
    tier: 'read-only',
    input: z.object({}),
    run: () => {
      throw new ToolError('it broke', { code: 'NOT_FOUND' });
    },
  });
  const far = defineTool({
    name: 'echo',
    namespace: 'acme.far',
    version: '1.0.0',
    description: 'Another echo.',
    tier: 'read-only',
    input: z.object({ text: z.string() }),
    run: ({ text }) => ({ output: `far ${text}` }),
  });
  return { tools: [echo, hold, fail, far], started, release, runs: () => runs };
}
