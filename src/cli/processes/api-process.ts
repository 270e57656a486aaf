/** The API process of `pawl up` and `pawl serve`: a producer with the HTTP API and Bull Board in front of it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, createLogger } from '../../main.ts';
import type { DispatchEvent } from '../../producer/calls/submission.ts';
import type { Pawl } from '../../producer/client.ts';
import { BOARD_PATH, type HttpServer, startHttpServer } from '../../producer/http/server.ts';
import { FleetView } from '../../producer/operations/fleet-metrics.ts';
import type { Hook } from '../../shared/calls/define-hook.ts';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError, reasonOf } from '../../shared/errors/failure.ts';
import { installCommand, OPTIONAL_FEATURES } from '../../shared/errors/optional-packages.ts';
import { AuditService } from '../../shared/store/audit-service.ts';
import type { PublishedTool } from '../../shared/store/fleet/catalogue.ts';
import { clusterUrl } from '../../shared/store/redis/address.ts';
import { redisOptions } from '../../shared/store/redis/connection-options.ts';
import { PAWL_VERSION } from '../../shared/store/redis/own-files.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { producerLine, writeLogLine } from '../../shared/telemetry/log-events.ts';
import type { Toolset } from '../../shared/tools/toolset.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { withoutPassword, withRedisHint } from '../context.ts';
import { packagesNotInstalled } from '../doctor/optional-packages.ts';
import { type Board, openBoard } from './bull-board.ts';
import { openProcessEndpoint } from './health-endpoint.ts';
import { markStopped } from './worker-processes.ts';

export interface ApiProcess {
  readonly addresses: { readonly url: string; readonly queuesUrl: string; readonly redis: string };
  /** Resolves once calls can be accepted. Throws `BACKEND_UNAVAILABLE` when that takes too long. */
  ready(): Promise<void>;
  /** The addresses, for people. */
  describe(): string;
  /** Marks these workers as stopped on purpose, so that their calls are not counted as having crashed them. */
  stopping(workerIds: readonly string[]): void;
  /** Stops accepting calls; requests for the state of calls are still answered. */
  drain(): void;
  close(): Promise<void>;
}

interface ApiProcessOptions {
  /** True while parts are starting; `/readyz` answers 503 until then. Default: ready at once. */
  readonly isStarting?: () => boolean;
  /** The hooks that run around the calls of this process. */
  readonly hooks?: readonly Hook[];
  /** The operator's page becomes the channel of sessions that name none. */
  readonly isDefaultChannel?: boolean;
  /** The toolsets that limit the tools that sessions see here. Default: all tools that a session may call. */
  readonly toolsets?: readonly Toolset<PublishedTool>[] | undefined;
}

const READY_TIMEOUT_MS = 15_000;
/** The page stops being the default channel this long after the process was killed. */
const PAGE_LEASE_MS = 60_000;
const POLL_MS = 50;

/** Opens the producer and the server. Throws `CONFIGURATION` for an address that cannot be used, `BACKEND_UNAVAILABLE`. */
export async function openApiProcess(settings: Settings, options: ApiProcessOptions = {}): Promise<ApiProcess> {
  const { isStarting = () => false, isDefaultChannel = false } = options;
  const log = createLogger(settings);
  checkBoardAddress(settings);
  const endpoint = await openProcessEndpoint(settings);
  const pawl = await openProducer(settings, log, options).catch(async (error: unknown) => {
    await endpoint?.close();
    throw error;
  });
  const fleet = new FleetView(pawl);
  const board = openPawlBoard(pawl, settings, log);
  const closeEndpoints = async () => {
    await endpoint?.close();
    await board.close();
  };
  const server = await startHttpServer({
    ...{ pawl, settings, log, fleet, isStarting },
    board: board.router,
  }).catch(async (error: unknown) => {
    await closeEndpoints();
    await pawl.close();
    throw error;
  });
  const audit = AuditService.open(pawl.backend, settings, {
    files: true,
    log,
    failures: pawl.metrics.auditWriteFailures,
  });
  const withdrawPage = isDefaultChannel ? await offerPage(pawl, log) : async () => {};
  let draining = false;
  endpoint?.watch({
    redis: pawl.backend.redis,
    prefix: settings.prefix,
    isDraining: () => draining,
    isStarting,
    metrics: () => fleet.text('own'),
  });
  const addresses = addressesOf(server, settings);
  return {
    addresses,
    ready: () => waitUntilReady(server.url),
    describe: () => describeAddresses(addresses),
    stopping: (workerIds) => markStopped(pawl.backend, workerIds),
    drain: () => {
      draining = true;
      void pawl.stopSchedules();
      server.drain();
    },
    close: async () => {
      draining = true;
      await server.close();
      await withdrawPage();
      await closeEndpoints();
      await audit.close();
      await pawl.close();
    },
  };
}

function addressesOf({ url }: HttpServer, { redisUrl, dataDir }: Settings): ApiProcess['addresses'] {
  const redis = redisUrl === undefined ? `embedded, data in ${dataDir}` : withoutPassword(redisUrl);
  return { url, queuesUrl: `${url}${BOARD_PATH}`, redis };
}

function describeAddresses({ url, queuesUrl, redis }: ApiProcess['addresses']): string {
  const missing = packagesNotInstalled(OPTIONAL_FEATURES.board.packages);
  return [
    `Pawl ${PAWL_VERSION} is up`,
    `  API      ${url} (described at ${url}/openapi.json)`,
    `  page     ${url}/ (the operator's)`,
    `  queues   ${missing.length === 0 ? queuesUrl : `none: ${installCommand(missing)}`}`,
    `  MCP      ${url}/mcp`,
    `  Redis    ${redis}`,
  ].join('\n');
}

function openPawlBoard({ backend }: Pawl, settings: Settings, log: Logger): Board {
  return openBoard({
    settings,
    redisUrl: boardUrl(settings.boardRedisUrl, backend),
    redis: backend.redis,
    basePath: BOARD_PATH,
    shards: backend.shards,
    log,
  });
}

/** The board reads its address in the background, where a fault would only show as a board that cannot be read. Throws `CONFIGURATION`. */
function checkBoardAddress({ boardRedisUrl }: Settings): void {
  if (boardRedisUrl === undefined) return;
  try {
    redisOptions({ url: boardRedisUrl, name: 'board', mode: 'fail-fast' });
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    throw new PawlError(error.code, error.message.replaceAll('REDIS_URL', 'PAWL_BOARD_REDIS_URL'), { cause: error });
  }
}

/** The Redis address of the board. For a cluster, one node's address stands for the whole cluster. */
function boardUrl(boardPrefix: string | undefined, { url, clustered }: Pawl['backend']): string {
  if (boardPrefix === undefined) return url;
  return clustered ? clusterUrl(boardPrefix) : boardPrefix;
}

async function openProducer(
  settings: Settings,
  log: Logger,
  { hooks = [], toolsets }: Pick<ApiProcessOptions, 'hooks' | 'toolsets'>,
): Promise<Pawl> {
  try {
    const onEvent = (event: DispatchEvent) => writeLogLine(log, producerLine(event));
    return await connect({ log, hooks, ...defined({ toolsets }), onEvent, schedules: true });
  } catch (error) {
    throw withRedisHint(error, settings);
  }
}

async function waitUntilReady(url: string): Promise<void> {
  const deadlineMs = performance.now() + READY_TIMEOUT_MS;
  let lastFailure = 'no answer';
  while (performance.now() < deadlineMs) {
    try {
      const answer = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(READY_TIMEOUT_MS) });
      await answer.body?.cancel();
      if (answer.status === 200) return;
      lastFailure = `status ${answer.status}`;
    } catch (error) {
      lastFailure = reasonOf(error);
    }
    await sleep(POLL_MS);
  }
  throw new PawlError(
    'BACKEND_UNAVAILABLE',
    `The server was not ready within ${READY_TIMEOUT_MS} ms (${lastFailure}).`,
  );
}

/** Makes the operator's page the channel of sessions that name none, until the returned function is called. */
async function offerPage(pawl: Pawl, log: Logger): Promise<() => Promise<void>> {
  const { sessions } = pawl.backend;
  const logFailure = (error: unknown) => log.warn({ error }, 'the operator’s page could not be offered as a channel');
  const offer = (forMs: number) => sessions.offerChannel('operator', forMs).catch(logFailure);
  await offer(PAGE_LEASE_MS);
  const timer = setInterval(() => void offer(PAGE_LEASE_MS), PAGE_LEASE_MS / 3).unref();
  return () => {
    clearInterval(timer);
    return offer(0);
  };
}
