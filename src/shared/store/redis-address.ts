/** What the address of a Redis says: one server, or a cluster. */
import type { RedisOptions } from 'ioredis';
import { PawlError } from '../failure.ts';

/** Between two nodes of a cluster; a comma of a password is none. */
const NEXT_NODE = /,(?=\s*rediss?:\/\/|[^@]*$)/;

/** Behind the host: digits of a password stand before an @. */
const PORT = /^rediss?:\/\/(?:[^/?#]*@)?[^@/?#]*:(\d+)(?:[/?#]|$)/;

/** Whether it is the address of a Redis Cluster. */
export function isCluster(url: string): boolean {
  return /^rediss?\+cluster:/.test(url) || (/^rediss?:/.test(url) && NEXT_NODE.test(url));
}

/** Of the cluster that a node belongs to. */
export function clusterUrl(url: string): string {
  return url.replace(/^(rediss?):/, '$1+cluster:');
}

/** A cluster's nodes, each an address of its own; who asks and how is as the first one says. */
export function nodesOf(url: string): readonly [string, ...string[]] {
  const [first = '', ...others] = url
    .replace(/^(rediss?)\+cluster:/, '$1:')
    .split(NEXT_NODE)
    .map((node) => node.trim())
    .filter((node) => node !== '');
  const scheme = /^rediss?:/.exec(first)?.[0] ?? 'redis:';
  return [first, ...others.map((node) => (node.includes('://') ? node : `${scheme}//${node}`))];
}

/** Of one server. Throws `CONFIGURATION`. */
export function addressOf(url: string): RedisOptions {
  if (url.startsWith('/')) return { path: url };
  const port = PORT.exec(url)?.[1];
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535))
    throw new PawlError('CONFIGURATION', 'The port in REDIS_URL must be between 1 and 65535.');
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !['redis:', 'rediss:', 'unix:', 'redis+unix:'].includes(parsed.protocol)) {
    throw new PawlError(
      'CONFIGURATION',
      `REDIS_URL must be redis://, rediss:// or unix:///path, or several nodes of a cluster; got ${parsed === undefined ? 'something else' : `${parsed.protocol}…`}.`,
    );
  }
  if (parsed.protocol === 'unix:' || parsed.protocol === 'redis+unix:')
    return { path: decoded(parsed.pathname, 'path') };
  return {
    host: parsed.hostname,
    port: parsed.port === '' ? 6379 : Number(parsed.port),
    ...(parsed.username === '' ? {} : { username: decoded(parsed.username, 'user name') }),
    ...(parsed.password === '' ? {} : { password: decoded(parsed.password, 'password') }),
    ...(parsed.pathname.length > 1 ? { db: databaseOf(parsed.pathname.slice(1)) } : {}),
    ...(parsed.protocol === 'rediss:' ? { tls: {} } : {}),
  };
}

function decoded(text: string, part: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new PawlError('CONFIGURATION', `The ${part} in REDIS_URL has a % that encodes nothing: write it as %25.`);
  }
}

/** Not shown when it is wrong: behind a / of a password that is not encoded stands the rest of the password. */
function databaseOf(text: string): number {
  if (!/^\d+$/.test(text))
    throw new PawlError('CONFIGURATION', 'The database in REDIS_URL must be a number, as in redis://host:6379/1.');
  return Number(text);
}
