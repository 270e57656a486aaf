/** The part of pino's logger that Pawl uses. Any object of this shape works. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** The event of lines about an embedded Redis that is being fetched or started: they explain a start that is slow. */
export const EMBEDDED_REDIS_STEP = 'embedded_redis';

/** The event of lines about what the Redis server promises: they are the same for every process that uses it. */
export const REDIS_PROMISE = 'redis_promise';

export const silentLogger: Logger = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
