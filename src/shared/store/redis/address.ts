/** The address of a Redis: one server, a cluster, or the Sentinels that know a server. Each part is used, or refused by name. */
import { isIP } from 'node:net';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import { domainToASCII } from 'node:url';
import type { RedisOptions } from 'ioredis';
import { PawlError } from '../../errors/failure.ts';

/** Between two nodes of a cluster; a comma of a password or of a query is none. */
const NEXT_NODE = /(?<!\?.*),(?=\s*rediss?:\/\/|[^@]*$)|,(?=\s*rediss?:\/\/)/;

/** The port of an address: digits of a password stand before an @. */
const PORT = /^rediss?:\/\/(?:[^/?#]*@)?(?:\[[^\]]*\]|[^@/?#:[\]]*):(\d+)(?:[/?#]|$)/;
const BARE_IPV6 = /^rediss?:\/\/(?:[^/?#]*@)?[\da-f.]*:[\da-f.]*:[\da-f:.]*(?:%[^/?#]*)?(?:[/?#]|$)/i;
/** URLs know no zones, as in `[fe80::1%eth0]`; RFC 6874 writes the % as %25. */
const ZONE = /(?<=\[[\da-f:.]+)%(?:25)?([^\]/?#@]+)(?=\])/i;
const SOCKET = /^(?:redis\+)?unix:(?:\/\/(?:([^/@]*)@)?([^/]*))?(\/[^?#]*)(?:\?([^#]*))?(#.*)?$/;
const SENTINEL = /^rediss?\+sentinel:/;
const SENTINELS = /^([^/]*\/\/(?:[^/?#]*@)?[^/?#]*)([^?#]*)(.*)$/;

/** Whether it is the address of a Redis Cluster. */
export function isCluster(url: string): boolean {
  return /^rediss?\+cluster:/.test(url) || (/^rediss?:/.test(url) && NEXT_NODE.test(url));
}

/** The address of the cluster that a node belongs to. */
export function clusterUrl(url: string): string {
  return url.replace(/^(rediss?):/, '$1+cluster:');
}

/** A cluster's nodes, each an address of its own. */
export function nodesOf(url: string): readonly [string, ...string[]] {
  const [first = '', ...others] = url
    .replace(/^(rediss?)\+(?:cluster|sentinel):/, '$1:')
    .split(NEXT_NODE)
    .map((node) => node.trim())
    .filter((node) => node !== '');
  const scheme = /^rediss?:/.exec(first)?.[0] ?? 'redis:';
  return [first, ...others.map((node) => (node.includes('://') ? node : `${scheme}//${node}`))];
}

export interface NodeAddress {
  readonly host: string;
  readonly port: number;
}

/** How to reach a cluster: any of its nodes, each in the same way. Throws `CONFIGURATION`. */
export function clusterAddressOf(url: string): {
  readonly nodes: readonly NodeAddress[];
  readonly common: RedisOptions;
} {
  const { nodes, common } = severalOf(url, addressOf);
  const { db = 0, path, ...rest } = common;
  if (path !== undefined) throw refused('A Redis Cluster cannot be reached through a Unix socket.');
  if (db !== 0) throw refused(`A Redis Cluster has one database: leave the ${db} out of REDIS_URL.`);
  const names = nodes.map(({ host }) => host).filter((host) => isIP(host) === 0);
  return { nodes, common: rest.tls === undefined ? rest : { ...rest, tls: { ...rest.tls, ...identityBy(names) } } };
}

/** The several nodes of an address, and what all of them have in common. */
function severalOf(url: string, read: (node: string) => RedisOptions) {
  const urls = nodesOf(url);
  if (new Set(urls.map((node) => /^\w*/.exec(node)?.[0])).size > 1)
    throw refused('REDIS_URL names some nodes with TLS (rediss://) and some without: all must be alike.');
  const common: Record<string, unknown> = {};
  const nodes = urls.map((node): NodeAddress => {
    const { host = LOCAL, port = 6379, ...rest } = read(node);
    for (const [part, value] of Object.entries(rest)) {
      if (part in common && JSON.stringify(common[part]) !== JSON.stringify(value))
        throw refused(`The nodes in REDIS_URL differ in their ${part}: one for all is possible.`);
      common[part] = value;
    }
    return { host, port };
  });
  return { nodes, common: common as RedisOptions };
}

/**
 * Nodes may announce themselves by address, while their certificates have names: then one of the names in REDIS_URL must be on it. A node
 * that is announced by name is checked by that name.
 */
function identityBy(names: readonly string[]) {
  return {
    checkServerIdentity: (host: string, certificate: PeerCertificate): Error | undefined => {
      const wrong = checkServerIdentity(host, certificate);
      if (wrong === undefined) return undefined;
      if (isIP(host) !== 0 && names.some((name) => checkServerIdentity(name, certificate) === undefined))
        return undefined;
      wrong.message += `. Name a node in REDIS_URL as its certificate does, or let the nodes announce such names (cluster-announce-hostname)`;
      return wrong;
    },
  };
}

/**
 * The server that Sentinels know by a name: `redis+sentinel://user:password@one:26379,two:26379/name/0`. User and password are those of
 * the server; the Sentinels' own are `?sentinelUsername=` and `?sentinelPassword=`.
 */
function sentinelAddressOf(url: string): RedisOptions {
  const [, servers = '', path = '', query = ''] = SENTINELS.exec(url) ?? [];
  const [name = '', ...database] = path.slice(1).split('/');
  if (name === '')
    throw refused(
      'REDIS_URL names Sentinels and no server: write its name last, as in redis+sentinel://host:26379/mymaster.',
    );
  const withoutName = `${servers}${database.map((part) => `/${part}`).join('')}${query}`;
  const { nodes, common } = severalOf(withoutName, (node) => readAddress(node, SENTINEL_PARTS, 26_379));
  const { tls } = common;
  return {
    ...common,
    sentinels: [...nodes],
    name: decoded(name, 'name of the server'),
    ...(tls === undefined ? {} : { sentinelTLS: tls, enableTLSForSentinelMode: true }),
  };
}

const LOCAL = '127.0.0.1';

type Reader = (value: string) => RedisOptions;
/** The parameters of the query, beside or in place of the parts of the address. */
const PARTS: Readonly<Record<string, Reader>> = {
  db: (value) => ({ db: databaseOf(value) }),
  username: (value) => ({ username: value }),
  password: (value) => ({ password: value }),
  tls: (value) => (isYes(value, 'tls') ? { tls: {} } : {}),
  family: (value) => ({ family: familyOf(value) }),
};
const SENTINEL_PARTS: typeof PARTS = {
  ...PARTS,
  sentinelUsername: (value) => ({ sentinelUsername: value }),
  sentinelPassword: (value) => ({ sentinelPassword: value }),
};

/** How to reach what an address names: one server, a node of a cluster, or the server that Sentinels name. Throws `CONFIGURATION`. */
export function addressOf(url: string): RedisOptions {
  if (url.startsWith('/')) return url.includes('?') ? socketAddressOf(`unix://${url}`) : { path: url };
  if (SENTINEL.test(url)) return sentinelAddressOf(url);
  return /^(?:redis\+)?unix:/.test(url) ? socketAddressOf(url) : readAddress(url, PARTS, 6379);
}

function readAddress(url: string, parts: typeof PARTS, defaultPort: number): RedisOptions {
  if (BARE_IPV6.test(url))
    throw refused('An IPv6 address in REDIS_URL must stand in brackets, as in redis://[::1]:6379.');
  const port = PORT.exec(url)?.[1];
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535))
    throw refused('The port in REDIS_URL must be between 1 and 65535.');
  const zone = ZONE.exec(url)?.[1];
  const plain = zone === undefined ? url : url.replace(ZONE, '');
  const parsed = URL.canParse(plain) ? new URL(plain) : undefined;
  if (parsed === undefined || !/^\s*rediss?:\/\//i.test(plain))
    throw refused(
      `REDIS_URL must be redis://, rediss:// or unix:///path, or several nodes of a cluster; got ${parsed === undefined ? 'something else' : `${parsed.protocol}…`}.`,
    );
  const host = hostOf(parsed.hostname);
  const fromQuery = queryOf(parsed.search.slice(1), parsed.hash, parts);
  if (parsed.protocol === 'rediss:' && /[?&]tls=/.test(parsed.search) && fromQuery.tls === undefined)
    throw refused('REDIS_URL asks for TLS (rediss://) and against it (tls): leave one out.');
  return combined(
    {
      host: (zone === undefined ? host : `${host}%${decoded(zone, 'zone')}`) || LOCAL,
      port: parsed.port === '' ? defaultPort : Number(parsed.port),
      ...credentialsOf(parsed.username, parsed.password),
      ...(parsed.pathname.length > 1 ? { db: databaseOf(parsed.pathname.slice(1)) } : {}),
    },
    { ...fromQuery, ...(parsed.protocol === 'rediss:' ? { tls: {} } : {}) },
  );
}

/** URLs of this kind keep the bytes of a name with other letters; the network has a form of its own for it. */
function hostOf(hostname: string): string {
  if (!hostname.includes('%')) return hostname.replace(/^\[(.*)\]$/, '$1');
  const host = domainToASCII(decoded(hostname, 'host'));
  if (host === '') throw refused('The host in REDIS_URL is no name of a host.');
  return host;
}

/** A Unix socket: `unix://user:password@/path?db=1`. */
function socketAddressOf(url: string): RedisOptions {
  const [, userInfo = '', host = '', path, query = '', hash = ''] = SOCKET.exec(url) ?? [];
  if (path === undefined || host !== '')
    throw refused('A Unix socket in REDIS_URL has no host: write unix:///path/to/socket, with three slashes.');
  const colon = userInfo.indexOf(':');
  const [user, password] = colon === -1 ? [userInfo, ''] : [userInfo.slice(0, colon), userInfo.slice(colon + 1)];
  const fromQuery = queryOf(query, hash, PARTS);
  if (fromQuery.tls !== undefined || fromQuery.family !== undefined)
    throw refused('A Unix socket in REDIS_URL takes db, username and password; tls and family are for hosts.');
  return combined({ path: decoded(path, 'path'), ...credentialsOf(user, password) }, fromQuery);
}

function credentialsOf(username: string, password: string): RedisOptions {
  return {
    ...(username === '' ? {} : { username: decoded(username, 'user name') }),
    ...(password === '' ? {} : { password: decoded(password, 'password') }),
  };
}

/** What stands behind the ?. Names are shown, unless what is there may be the rest of a password that is not encoded. */
function queryOf(query: string, hash: string, parts: typeof PARTS): RedisOptions {
  if (`${query}${hash}`.includes('@'))
    throw refused('REDIS_URL has a ? or # before an @: in a password, write them as %3F and %23.');
  if (hash !== '') throw refused('REDIS_URL has a part behind a #, which means nothing here: leave it out.');
  let read: RedisOptions = {};
  for (const entry of query.split('&').filter((part) => part !== '')) {
    const equals = entry.indexOf('=');
    const name = equals === -1 ? entry : entry.slice(0, equals);
    const reader = Object.hasOwn(parts, name) ? parts[name] : undefined;
    if (reader === undefined)
      throw refused(
        `REDIS_URL has the part ${JSON.stringify(name)}, which Pawl does not know: it takes ${Object.keys(parts).join(', ')}.`,
      );
    read = combined(read, reader(equals === -1 ? '' : decoded(entry.slice(equals + 1), name)));
  }
  return read;
}

/** Throws `CONFIGURATION` for a part that is named in two places. */
function combined(one: RedisOptions, other: RedisOptions): RedisOptions {
  const twice = Object.keys(other).find((part) => part in one);
  if (twice !== undefined) throw refused(`REDIS_URL names its ${twice} twice: leave one out.`);
  return { ...one, ...other };
}

function isYes(value: string, part: string): boolean {
  if (['true', '1', 'on', 'yes', ''].includes(value)) return true;
  if (['false', '0', 'off', 'no'].includes(value)) return false;
  throw refused(`REDIS_URL has the part ${JSON.stringify(part)}, which must be true or false.`);
}

function familyOf(value: string): number {
  if (!['0', '4', '6'].includes(value)) throw refused('REDIS_URL has the part "family", which must be 4 or 6.');
  return Number(value);
}

function decoded(text: string, part: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw refused(`The ${part} in REDIS_URL has a % that encodes nothing: write it as %25.`);
  }
}

/** Not shown when it is wrong: behind a / of a password that is not encoded stands the rest of the password. */
function databaseOf(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw refused('The database in REDIS_URL must be a number, as in redis://host:6379/1.');
  return Number(text);
}

function refused(message: string): PawlError {
  return new PawlError('CONFIGURATION', message);
}
