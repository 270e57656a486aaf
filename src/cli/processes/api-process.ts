/** What `pawl up` and `pawl serve` share: a producer with the HTTP API and Bull Board before it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, createLogger, PAWL_VERSION } from '../../main.ts';
import type { DispatchEvent } from '../../producer/calls/submission.ts';
import type { Pawl } from '../../producer/client.ts';
import { BOARD_PATH, type HttpServer, startHttpServer } from '../../producer/http/server.ts';
import { FleetView } from '../../producer/operations/fleet-metrics.ts';
import type { Hook } from '../../shared/calls/define-hook.ts';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { AuditService } from '../../shared/store/audit-service.ts';
import type { PublishedTool } from '../../shared/store/fleet/catalogue.ts';
import { clusterUrl } from '../../shared/store/redis/address.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { producerLine, writeLogLine } from '../../shared/telemetry/log-events.ts';
import type { Toolset } from '../../shared/tools/toolset.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { withoutPassword, withRedisHint } from '../context.ts';
import { openBoard } from './bull-board.ts';
import { openProcessEndpoint } from './health-endpoint.ts';
import { markStopped } from './worker-processes.ts';

export interface FrontDoor {
  readonly addresses: { readonly url: string; readonly queuesUrl: string; readonly redis: string };
  /** Resolves once calls can be accepted. Throws `BACKEND_UNAVAILABLE` when that takes too long. */
  ready(): Promise<void>;
  /** The addresses, for people. */
  describe(): string;
  /** Says that these workers are stopped: the calls that they still run are not to blame for their end. */
  stopping(workerIds: readonly string[]): void;
  /** Not ready any more; still answers whoever asks what became of a call. */
  drain(): void;
  close(): Promise<void>;
}

export interface FrontDoorOptions {
  /** Not ready before it says so. Default: ready at once. */
  readonly isStarting?: () => boolean;
  /** Around the calls that come in here. */
  readonly hooks?: readonly Hook[];
  /** Its operator's page is the channel of sessions that name none. */
  readonly isDefaultChannel?: boolean;
  /** What sessions see of the tools that are called here; without any, all that they may call. */
  readonly toolsets?: readonly Toolset<PublishedTool>[] | undefined;
}

const READY_TIMEOUT_MS = 15_000;
/** One that is killed offers its page no longer than this. */
const PAGE_OFFERED_MS = 60_000;
const ASK_EVERY_MS = 50;

/** Opens the producer and the server. Throws `CONFIGURATION` for an address that cannot be used, `BACKEND_UNAVAILABLE`. */
export async function openFrontDoor(
  settings: Settings,
  { isStarting = () => false, isDefaultChannel = false, hooks = [], toolsets }: FrontDoorOptions = {},
): Promise<FrontDoor> {
  const log = createLogger(settings);
  const endpoint = await openProcessEndpoint(settings);
  const pawl = await openProducer(settings, log, { hooks, toolsets }).catch(async (error: unknown) => {
    await endpoint?.close();
    throw error;
  });
  const fleet = new FleetView(pawl);
  const board = openBoard({
    settings,
    redisUrl: boardUrl(settings.boardRedisUrl, pawl.backend),
    redis: pawl.backend.redis,
    basePath: BOARD_PATH,
    shards: pawl.backend.shards,
    log,
  });
  let server: HttpServer;
  try {
    const parts = { pawl, settings, log, fleet, board: board.router, version: PAWL_VERSION, isStarting };
    server = await startHttpServer(parts);
  } catch (error) {
    await endpoint?.close();
    await board.close();
    await pawl.close();
    throw error;
  }
  const keeper = AuditService.open(pawl.backend, settings, {
    files: true,
    log,
    failures: pawl.metrics.auditWriteFailures,
  });
  const withdraw = isDefaultChannel ? await offerPage(pawl, log) : async () => {};
  const { url } = server;
  let draining = false;
  endpoint?.watch({
    redis: pawl.backend.redis,
    prefix: settings.prefix,
    isDraining: () => draining,
    isStarting,
    metrics: () => fleet.text('own'),
  });
  const redis =
    settings.redisUrl === undefined ? `embedded, data in ${settings.dataDir}` : withoutPassword(settings.redisUrl);
  return {
    addresses: { url, queuesUrl: `${url}${BOARD_PATH}`, redis },
    ready: () => untilReady(url),
    describe: () =>
      [
        `Pawl ${PAWL_VERSION} is up`,
        `  API      ${url} (described at ${url}/openapi.json)`,
        `  page     ${url}/ (the operator's)`,
        `  queues   ${url}${BOARD_PATH}`,
        `  MCP      ${url}/mcp`,
        `  Redis    ${redis}`,
      ].join('\n'),
    stopping: (workerIds) => markStopped(pawl.backend, workerIds),
    drain: () => {
      draining = true;
      server.drain();
    },
    close: async () => {
      draining = true;
      await server.close();
      await withdraw();
      await endpoint?.close();
      await board.close();
      await keeper.close();
      await pawl.close();
    },
  };
}

/** Who looks at one node of a cluster looks at the cluster. */
function boardUrl(own: string | undefined, { url, clustered }: Pawl['backend']): string {
  if (own === undefined) return url;
  return clustered ? clusterUrl(own) : own;
}

async function openProducer(
  settings: Settings,
  log: Logger,
  { hooks = [], toolsets }: Pick<FrontDoorOptions, 'hooks' | 'toolsets'>,
): Promise<Pawl> {
  try {
    const onEvent = (event: DispatchEvent) => writeLogLine(log, producerLine(event));
    return await connect({ log, hooks, ...defined({ toolsets }), onEvent });
  } catch (error) {
    throw withRedisHint(error, settings);
  }
}

async function untilReady(url: string): Promise<void> {
  const deadlineMs = performance.now() + READY_TIMEOUT_MS;
  let last = 'no answer';
  while (performance.now() < deadlineMs) {
    try {
      const answer = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(READY_TIMEOUT_MS) });
      await answer.body?.cancel();
      if (answer.status === 200) return;
      last = `status ${answer.status}`;
    } catch (error) {
      last = error instanceof Error ? error.message : String(error);
    }
    await sleep(ASK_EVERY_MS);
  }
  throw new PawlError('BACKEND_UNAVAILABLE', `The server was not ready within ${READY_TIMEOUT_MS} ms (${last}).`);
}

/** Makes the operator's page the channel of sessions that name none, until the answer is called. */
async function offerPage(pawl: Pawl, log: Logger): Promise<() => Promise<void>> {
  const { sessions } = pawl.backend;
  const failed = (error: unknown) => log.warn({ error }, 'the operator’s page could not be offered as a channel');
  const published = (forMs: number) => sessions.offerChannel('operator', forMs).catch(failed);
  await published(PAGE_OFFERED_MS);
  const timer = setInterval(() => void published(PAGE_OFFERED_MS), PAGE_OFFERED_MS / 3);
  timer.unref();
  return () => {
    clearInterval(timer);
    return published(0);
  };
}
