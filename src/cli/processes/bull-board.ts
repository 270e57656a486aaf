/**
 * Bull Board, for looking only: the queues as they are. Nothing on it can change a job, so nothing clicked here can run,
 * repeat or approve a call.
 */
import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { ExpressAdapter } from '@bull-board/express';
import { type ConnectionOptions, Queue } from 'bullmq';
import type { Express } from 'express';
import type { Settings } from '../../shared/config/config.ts';
import { FAILURES } from '../../shared/errors/failure-codes.ts';
import { redact } from '../../shared/errors/redaction.ts';
import type { Shards } from '../../shared/store/queues/shards.ts';
import { backendError } from '../../shared/store/redis/backend-error.ts';
import { type Redis, slotOf } from '../../shared/store/redis/connection.ts';
import { nodeOptions } from '../../shared/store/redis/connection-options.ts';
import { PartitionKeys } from '../../shared/store/redis/keys.ts';
import type { Logger } from '../../shared/telemetry/log.ts';

export interface BoardOptions {
  readonly settings: Pick<Settings, 'prefix'>;
  /** Of Redis: `pawl.backend.url`. */
  readonly redisUrl: string;
  /** Knows, in a cluster, which node has what. */
  readonly redis: Redis;
  /** Where the router will be mounted. */
  readonly basePath: string;
  readonly log: Logger;
  /** Queues are of places; more may come. */
  readonly shards: Pick<Shards, 'partitions' | 'onChange'>;
}

export interface Board {
  readonly router: Express;
  /** Ends its connections. */
  close(): Promise<void>;
}

export function openBoard(options: BoardOptions): Board {
  const { settings, shards } = options;
  const queues = new Map<string, Queue>();
  const opened = () =>
    shards
      .partitions()
      .map((partition) => new PartitionKeys(settings.prefix, partition))
      .filter((keys) => !queues.has(keys.queue))
      .map((keys) => {
        const queue = openQueue(keys, options);
        queues.set(keys.queue, queue);
        return readOnly(queue);
      });
  const adapter = new ExpressAdapter();
  adapter.setBasePath(options.basePath);
  const board = createBullBoard({
    queues: opened(),
    serverAdapter: adapter,
    options: {
      uiConfig: {
        boardTitle: 'Pawl',
        hideDocsLink: true,
        sortQueues: false,
      },
      handlerHooks: { after: (_context, result) => ({ ...result, body: redacted(result.body) as typeof result.body }) },
    },
  });
  const stop = shards.onChange(() => {
    for (const queue of opened()) board.addQueue(queue);
  });
  // The board's own handler would send the error's text, which may name hosts.
  adapter.setErrorHandler((error) => {
    options.log.warn({ event: 'board_error', error: error.message }, 'the board could not be shown');
    const isAway = backendError(error) !== error;
    const [status, code, message] = isAway
      ? [503, 'BACKEND_UNAVAILABLE', FAILURES.BACKEND_UNAVAILABLE.sentence]
      : [500, 'INTERNAL', 'The board could not be read.'];
    // The board's types know fewer statuses than HTTP.
    return { status: status as 500, body: { error: { code, message } } };
  });
  const router = adapter.getRouter() as Express;
  router.disable('x-powered-by');
  return {
    router,
    close: async () => {
      stop();
      // `disconnect` would wait for the end of a connection that is away, which nobody tells of.
      await Promise.all([...queues.values()].map((queue) => queue.backend.close(true).catch(() => {})));
    },
  };
}

function openQueue(keys: PartitionKeys, { settings, redis, redisUrl, log }: BoardOptions): Queue {
  const about = { url: redisUrl, name: `${settings.prefix}:board:${keys.queue}`, mode: 'fail-fast' } as const;
  const queue = new Queue(keys.queue, {
    connection: nodeOptions(about, () => slotOf(redis, keys.calls)?.node) as ConnectionOptions,
    prefix: keys.base,
    // A queue that only looks must not set the length of the event stream anew.
    skipMetasUpdate: true,
  });
  queue.on('error', (error) => log.debug({ error: error.message }, 'board'));
  return queue;
}

function readOnly(queue: Queue): BullMQAdapter {
  const adapter = new BullMQAdapter(queue, { readOnlyMode: true, allowRetries: false });
  adapter.setFormatter('data', (data: unknown) => pick(data, ['callId', 'generation', 'session']));
  adapter.setFormatter('returnValue', (value: unknown) => pick(value, ['status', 'attempts', 'durationMs']));
  return adapter;
}

/** Of a job, what the engine itself put there; whatever else a foreign job carries stays unseen. */
function pick(value: unknown, names: readonly string[]): object {
  if (typeof value !== 'object' || value === null) return {};
  return Object.fromEntries(Object.entries(value).filter(([name]) => names.includes(name)));
}

/** A failure's code without its text, which may quote what the tool was given; no stacks. */
function redacted(value: unknown): unknown {
  if (typeof value === 'string') return redact(value);
  if (Array.isArray(value)) return value.map(redacted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => {
      if (name === 'stacktrace') return [name, []];
      if (name === 'failedReason' || name === 'deferredFailure') return [name, codeOf(member)];
      return [name, redacted(member)];
    }),
  );
}

function codeOf(reason: unknown): unknown {
  if (typeof reason !== 'string' || reason === '') return reason;
  const code = /^[A-Z][A-Z0-9_]+(?=: )/.exec(reason)?.[0] ?? '';
  return Object.hasOwn(FAILURES, code) || /^HTTP_\d{3}$/.test(code) ? code : 'FAILED';
}
