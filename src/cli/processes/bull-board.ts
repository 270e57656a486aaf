/** Bull Board, read-only. It shows the queues and cannot change a job, so nothing clicked here can run, repeat or approve a call. */
import type { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { type ConnectionOptions, Queue } from 'bullmq';
import type { Express, RequestHandler } from 'express';
import { HttpError } from '../../producer/http/core/errors.ts';
import type { Settings } from '../../shared/config/config.ts';
import { FAILURES } from '../../shared/errors/failure-codes.ts';
import { loadOptional } from '../../shared/errors/optional-packages.ts';
import { redact } from '../../shared/errors/redaction.ts';
import type { Shards } from '../../shared/store/queues/shards.ts';
import { backendError } from '../../shared/store/redis/backend-error.ts';
import { type Redis, slotOf } from '../../shared/store/redis/connection.ts';
import { nodeOptions } from '../../shared/store/redis/connection-options.ts';
import { PartitionKeys } from '../../shared/store/redis/keys.ts';
import type { Logger } from '../../shared/telemetry/log.ts';

interface BoardOptions {
  readonly settings: Pick<Settings, 'prefix'>;
  /** The address of Redis: `pawl.backend.url`. */
  readonly redisUrl: string;
  /** The producer's connection, which knows the nodes of a cluster. */
  readonly redis: Redis;
  readonly basePath: string;
  readonly log: Logger;
  /** The partitions, each of which has a queue. More may be added later. */
  readonly shards: Pick<Shards, 'partitions' | 'onChange'>;
}

export interface Board {
  readonly router: RequestHandler;
  close(): Promise<void>;
}

/** Loads what a board needs: an optional dependency, and more than the rest of the server. */
function boardLibraries() {
  return Promise.all([
    import('@bull-board/api'),
    import('@bull-board/api/bullMQAdapter'),
    import('@bull-board/express'),
  ]);
}

/** Opens the board in the background. Without its packages, requests are answered with what to install. */
export function openBoard(options: BoardOptions, load: typeof boardLibraries = boardLibraries): Board {
  const boardPromise = loadOptional('board', load).then(
    (libraries) => boardWith(libraries, options),
    (error: Error) => {
      throw new HttpError('NOT_FOUND', error.message);
    },
  );
  boardPromise.catch(() => {});
  return {
    router: (request, response, next) => {
      boardPromise.then(({ router }) => router(request, response, next), next);
    },
    close: async () => (await boardPromise.catch(() => undefined))?.close(),
  };
}

interface OpenBoard {
  readonly router: Express;
  close(): Promise<void>;
}

type BoardLibraries = Awaited<ReturnType<typeof boardLibraries>>;

function boardWith(
  [{ createBullBoard }, { BullMQAdapter }, { ExpressAdapter }]: BoardLibraries,
  options: BoardOptions,
): OpenBoard {
  const { settings, shards } = options;
  const queues = new Map<string, Queue>();
  const openNewQueues = () =>
    shards
      .partitions()
      .map((partition) => new PartitionKeys(settings.prefix, partition))
      .filter((keys) => !queues.has(keys.queue))
      .map((keys) => {
        const queue = openQueue(keys, options);
        queues.set(keys.queue, queue);
        return readOnly(new BullMQAdapter(queue, { readOnlyMode: true, allowRetries: false }));
      });
  const adapter = new ExpressAdapter();
  adapter.setBasePath(options.basePath);
  const board = createBullBoard({
    queues: openNewQueues(),
    serverAdapter: adapter,
    options: {
      uiConfig: {
        boardTitle: 'Pawl',
        hideDocsLink: true,
        sortQueues: false,
      },
      handlerHooks: {
        after: (_context, result) => ({ ...result, body: redactValue(result.body) as typeof result.body }),
      },
    },
  });
  const stop = shards.onChange(() => {
    for (const queue of openNewQueues()) board.addQueue(queue);
  });
  // The board's own handler would send the error's message, which may name hosts.
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
      // `disconnect` would wait for ever for a connection that is already lost.
      await Promise.all([...queues.values()].map((queue) => queue.backend.close(true).catch(() => {})));
    },
  };
}

function openQueue(keys: PartitionKeys, { settings, redis, redisUrl, log }: BoardOptions): Queue {
  const connectionTarget = {
    url: redisUrl,
    name: `${settings.prefix}:board:${keys.queue}`,
    mode: 'fail-fast',
  } as const;
  const queue = new Queue(keys.queue, {
    connection: nodeOptions(connectionTarget, () => slotOf(redis, keys.calls)?.node) as ConnectionOptions,
    prefix: keys.base,
    // A read-only queue must not change the length of the event stream.
    skipMetasUpdate: true,
  });
  queue.on('error', (error) => log.debug({ error: error.message }, 'board'));
  return queue;
}

function readOnly(adapter: BullMQAdapter): BullMQAdapter {
  adapter.setFormatter('data', (data: unknown) => pick(data, ['callId', 'generation', 'session']));
  adapter.setFormatter('returnValue', (value: unknown) => pick(value, ['status', 'attempts', 'durationMs']));
  return adapter;
}

/** Picks the named fields, which Pawl itself wrote. Other fields of a foreign job are not shown. */
function pick(value: unknown, names: readonly string[]): object {
  if (typeof value !== 'object' || value === null) return {};
  return Object.fromEntries(Object.entries(value).filter(([name]) => names.includes(name)));
}

/** A failure's code without its message, which may quote parameters. Stacks are removed. */
function redactValue(value: unknown): unknown {
  if (typeof value === 'string') return redact(value);
  if (Array.isArray(value)) return value.map(redactValue);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => {
      if (name === 'stacktrace') return [name, []];
      if (name === 'failedReason' || name === 'deferredFailure') return [name, codeOf(member)];
      return [name, redactValue(member)];
    }),
  );
}

function codeOf(reason: unknown): unknown {
  if (typeof reason !== 'string' || reason === '') return reason;
  const code = /^[A-Z][A-Z0-9_]+(?=: )/.exec(reason)?.[0] ?? '';
  return Object.hasOwn(FAILURES, code) || /^HTTP_\d{3}$/.test(code) ? code : 'FAILED';
}
