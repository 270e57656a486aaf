/**
 * BullMQ stops listening to its connections before they have ended. ioredis emits an error that Redis sends after that, such as "max number
 * of clients reached", and without a listener it would end the process.
 */

/** The private members of BullMQ's `RedisQueueBackend` that lead to the clients of ioredis. */
interface Internals {
  readonly connection: Connection;
  readonly blockingConnection?: Connection;
}

interface Connection {
  readonly _client: { on(event: 'error', listener: () => void): unknown };
}

/** Ignores errors of a `RedisQueueBackend` that BullMQ does not hear. It reports those that it hears as before. */
export function ignoreLateErrors(backend: object): void {
  const { connection, blockingConnection } = backend as Internals;
  for (const each of [connection, blockingConnection]) each?._client.on('error', () => {});
}
