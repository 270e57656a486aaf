/** Parses REDIS_URL: one server, a cluster, or Sentinels. Each part is used, or refused with an error that names it. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { checkServerIdentity, type PeerCertificate } from 'node:tls';
import { domainToASCII } from 'node:url';
import type { RedisOptions } from 'ioredis';
import { PawlError } from '../../errors/failure.ts';

/** The comma between two nodes of a cluster, not one of a password or a query. */
const NEXT_NODE = /(?<!\?.*),(?=\s*rediss?:\/\/|[^@]*$)|,(?=\s*rediss?:\/\/)/;

/** The port of an address, not digits of a password, which are before an @. */
const PORT = /^rediss?:\/\/(?:[^/?#]*@)?(?:\[[^\]]*\]|[^@/?#:[\]]*):(\d+)(?:[/?#]|$)/;
const BARE_IPV6 = /^rediss?:\/\/(?:[^/?#]*@)?[\da-f.]*:[\da-f.]*:[\da-f:.]*(?:%[^/?#]*)?(?:[/?#]|$)/i;
/** Several nodes with a user each, or a password that holds an @ and a comma. */
const SEVERAL_USERS = /^\s*[\w+]+:\/\/[^/?#@]*@[^/?#]*[,;][^/?#]*@/;
const NO_HOST = /^rediss?:\/\/(?:[^/?#]*@)?(?![^/?#]*@)(?:[:/?#]|$)/;
/** Letters, digits and signs of names and addresses, as the network knows them. */
const HOST = /^[\w.:-]*$/;
/** The zone of an IPv6 address, as in `[fe80::1%eth0]`, which `URL` does not accept; RFC 6874 writes the % as %25. */
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

/** The nodes of a cluster, and the connection options that all of them share. Throws `CONFIGURATION`. */
export function clusterAddressOf(url: string): {
  readonly nodes: readonly NodeAddress[];
  readonly common: RedisOptions;
} {
  const { nodes, common } = nodesWithOptions(url, addressOf);
  const { db = 0, path, ...rest } = common;
  if (path !== undefined) throw invalidUrl('A Redis Cluster cannot be reached through a Unix socket.');
  if (db !== 0) throw invalidUrl(`A Redis Cluster has one database: leave the ${db} out of REDIS_URL.`);
  return {
    nodes,
    common:
      rest.tls === undefined ? rest : { ...rest, tls: { ...rest.tls, ...certificateCheck(nodes, ANNOUNCE.node) } },
  };
}

/** The settings by which nodes and Sentinels announce names. */
const ANNOUNCE = {
  node: 'let the nodes announce such names (cluster-announce-hostname)',
  sentinel:
    'let the Sentinels and servers announce such names (sentinel resolve-hostnames, sentinel announce-hostnames, replica-announce-ip)',
} as const;

function nodesWithOptions(url: string, read: (node: string) => RedisOptions) {
  const urls = nodesOf(url);
  if (urls.length > 1 && urls.some((node) => NO_HOST.test(node)))
    throw invalidUrl('REDIS_URL has a comma with no node in front of it: leave it out.');
  if (new Set(urls.map((node) => /^\w*/.exec(node)?.[0])).size > 1)
    throw invalidUrl('REDIS_URL names some nodes with TLS (rediss://) and some without: all must be alike.');
  const common: Record<string, unknown> = {};
  const commonTls: Record<string, unknown> = {};
  const share = (parts: Record<string, unknown>, added: object) => {
    for (const [part, value] of Object.entries(added)) {
      if (part in parts && JSON.stringify(parts[part]) !== JSON.stringify(value))
        throw invalidUrl(`The nodes in REDIS_URL differ in their ${part}: one for all is possible.`);
      parts[part] = value;
    }
  };
  const nodes = urls.map((node): NodeAddress => {
    const { host = LOCAL, port = 6379, tls, ...rest } = read(node);
    share(common, rest);
    // A query behind the last node names the files of all.
    if (tls !== undefined) share(commonTls, tls);
    if (tls !== undefined) common['tls'] = commonTls;
    return { host, port };
  });
  return { nodes, common: common as RedisOptions };
}

/**
 * Nodes and Sentinels may announce IP addresses, while the certificates have names. Then a name of REDIS_URL must be on the certificate. A
 * server that is announced by a name is checked by that name.
 */
function certificateCheck(nodes: readonly NodeAddress[], announce: string) {
  const names = nodes.map(({ host }) => host).filter((host) => isIP(host) === 0);
  return {
    checkServerIdentity: (host: string, certificate: PeerCertificate): Error | undefined => {
      const mismatch = checkServerIdentity(host, certificate);
      if (mismatch === undefined) return undefined;
      if (isIP(host) !== 0 && names.some((name) => checkServerIdentity(name, certificate) === undefined))
        return undefined;
      mismatch.message += `. Name a node in REDIS_URL as its certificate does, or ${announce}`;
      return mismatch;
    },
  };
}

/**
 * The server that Sentinels watch under a name: `redis+sentinel://user:password@one:26379,two:26379/name/0`. User and password are those
 * of the server; the Sentinels' own are `?sentinelUsername=` and `?sentinelPassword=`.
 */
function sentinelAddressOf(url: string): RedisOptions {
  const [, servers = '', path = '', query = ''] = SENTINELS.exec(url) ?? [];
  if (path.includes('@')) throw invalidUrl(SPLIT_PASSWORD);
  const [name = '', ...database] = path.slice(1).split('/');
  if (name === '')
    throw invalidUrl(
      'REDIS_URL names Sentinels and no server: write its name last, as in redis+sentinel://host:26379/mymaster.',
    );
  const withoutName = `${servers}${database.map((part) => `/${part}`).join('')}${query}`;
  const { nodes, common } = nodesWithOptions(withoutName, (node) => readAddress(node, SENTINEL_QUERY_PARTS, 26_379));
  const tls = common.tls && { ...common.tls, ...certificateCheck(nodes, ANNOUNCE.sentinel) };
  return {
    ...common,
    sentinels: [...nodes],
    name: decodePart(name, 'name of the server'),
    ...(tls !== undefined && { tls, sentinelTLS: tls, enableTLSForSentinelMode: true }),
  };
}

const SPLIT_PASSWORD = 'REDIS_URL has a /, ? or # before an @: in a password, write them as %2F, %3F and %23.';
const LOCAL = '127.0.0.1';

type ParameterParser = (value: string) => RedisOptions;
const QUERY_PARTS: Readonly<Record<string, ParameterParser>> = {
  db: (value) => ({ db: databaseOf(value) }),
  username: (value) => ({ username: value }),
  password: (value) => ({ password: value }),
  tls: (value) => (parseFlag(value, 'tls') ? { tls: {} } : {}),
  family: (value) => ({ family: familyOf(value) }),
  ca: (value) => ({ tls: { ca: fileOf(value, 'ca') } }),
  cert: (value) => ({ tls: { cert: fileOf(value, 'cert') } }),
  key: (value) => ({ tls: { key: fileOf(value, 'key') } }),
};
const SENTINEL_QUERY_PARTS: typeof QUERY_PARTS = {
  ...QUERY_PARTS,
  sentinelUsername: (value) => ({ sentinelUsername: value }),
  sentinelPassword: (value) => ({ sentinelPassword: value }),
};

/** The connection options of an address: a server, a node of a cluster, or a server behind Sentinels. Throws `CONFIGURATION`. */
export function addressOf(url: string): RedisOptions {
  if (url.startsWith('/')) return url.includes('?') ? socketAddressOf(`unix://${url}`) : { path: url };
  if (SENTINEL.test(url)) return sentinelAddressOf(url);
  return /^(?:redis\+)?unix:/.test(url) ? socketAddressOf(url) : readAddress(url, QUERY_PARTS, 6379);
}

function readAddress(url: string, parts: typeof QUERY_PARTS, defaultPort: number): RedisOptions {
  if (/^\s*["'`“‘]/.test(url))
    throw invalidUrl(
      'REDIS_URL begins with a quotation mark: leave it out. Files for docker --env-file, for example, take quotation marks as a part of the value.',
    );
  if (/^\s/.test(url)) throw invalidUrl('REDIS_URL begins with white space: leave it out.');
  // `URL` leaves such characters out.
  if (/[\t\n\r]/.test(url.trim()))
    throw invalidUrl('REDIS_URL has a line break or a tab in it: leave it out, or write %0A or %09 in a password.');
  if (SEVERAL_USERS.test(url))
    throw invalidUrl(
      'REDIS_URL has a user in front of several nodes: leave it at the first one, where it holds for all. In a password, write @ as %40.',
    );
  if (BARE_IPV6.test(url))
    throw invalidUrl('An IPv6 address in REDIS_URL must stand in brackets, as in redis://[::1]:6379.');
  const port = PORT.exec(url)?.[1];
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535))
    throw invalidUrl('The port in REDIS_URL must be between 1 and 65535.');
  const zone = ZONE.exec(url)?.[1];
  const plain = zone === undefined ? url : url.replace(ZONE, '');
  const parsed = URL.canParse(plain) ? new URL(plain) : undefined;
  const scheme = /^rediss?:\/\//i.test(url);
  if (parsed === undefined && scheme) throw invalidUrl(unreadableReason(url));
  if (parsed === undefined || !scheme)
    throw invalidUrl(
      `REDIS_URL must be redis://, rediss:// or unix:///path, several nodes of a cluster, or redis+sentinel://host:26379/name; got ${parsed === undefined ? 'something else' : `${parsed.protocol}…`}.`,
    );
  const host = hostOf(parsed.hostname);
  const fromQuery = queryOf(parsed.search.slice(1), parsed.hash, parts);
  const tls = tlsOf(parsed, fromQuery);
  return mergeOptions(
    {
      host: (zone === undefined ? host : `${host}%${decodePart(zone, 'zone')}`) || LOCAL,
      port: parsed.port === '' ? defaultPort : Number(parsed.port),
      ...credentialsOf(parsed.username, parsed.password),
      ...(parsed.pathname.length > 1 ? { db: databaseOf(parsed.pathname.slice(1)) } : {}),
    },
    { ...fromQuery, ...(tls !== undefined && { tls }) },
  );
}

function unreadableReason(url: string): string {
  // Passwords of many clouds are Base64.
  if (/[/?#].*@/s.test(url.replace(/^\w+:\/\//, ''))) return SPLIT_PASSWORD;
  if (NO_HOST.test(url)) return 'REDIS_URL has no host: write it as redis://host:6379.';
  return 'REDIS_URL has a host or a port that cannot be read: write it as redis://host:6379/0.';
}

function tlsOf({ protocol, search }: URL, { tls = protocol === 'rediss:' ? {} : undefined }: RedisOptions) {
  if (tls === undefined) return undefined;
  if (/[?&]tls=(?:false|0|off|no)(?:&|$)/.test(search))
    throw invalidUrl('REDIS_URL asks for TLS (rediss://, ca, cert, key) and against it (tls): leave one out.');
  if ((tls.cert === undefined) !== (tls.key === undefined))
    throw invalidUrl('A client certificate is two files: REDIS_URL must name both, cert and key.');
  return tls;
}

/** URLs of this kind keep the bytes of a name with other letters; the network has a form of its own for it. */
function hostOf(hostname: string): string {
  if (!hostname.includes('%') && HOST.test(hostname)) return hostname;
  if (/^\[.*\]$/.test(hostname)) return hostname.slice(1, -1);
  const decoded = decodePart(hostname, 'host');
  const host = domainToASCII(decoded);
  if (host === '' || !HOST.test(host) || /[/?#\\]/.test(decoded))
    throw invalidUrl('The host in REDIS_URL is no name of a host.');
  return host;
}

/** A Unix socket: `unix://user:password@/path?db=1`. */
function socketAddressOf(url: string): RedisOptions {
  const [, userInfo = '', host = '', path, query = '', hash = ''] = SOCKET.exec(url) ?? [];
  if (path === undefined || host !== '')
    throw invalidUrl('A Unix socket in REDIS_URL has no host: write unix:///path/to/socket, with three slashes.');
  const colon = userInfo.indexOf(':');
  const [user, password] = colon === -1 ? [userInfo, ''] : [userInfo.slice(0, colon), userInfo.slice(colon + 1)];
  const fromQuery = queryOf(query, hash, QUERY_PARTS);
  if (fromQuery.tls !== undefined || fromQuery.family !== undefined)
    throw invalidUrl(
      'A Unix socket in REDIS_URL takes db, username and password; tls, its files and family are for hosts.',
    );
  return mergeOptions({ path: decodePart(path, 'path'), ...credentialsOf(user, password) }, fromQuery);
}

function credentialsOf(username: string, password: string): RedisOptions {
  return {
    ...(username === '' ? {} : { username: decodePart(username, 'user name') }),
    ...(password === '' ? {} : { password: decodePart(password, 'password') }),
  };
}

/** Parses the text behind the ?. Errors do not show it if it may be the rest of a password that is not encoded. */
function queryOf(query: string, hash: string, parts: typeof QUERY_PARTS): RedisOptions {
  if (`${query}${hash}`.includes('@')) throw invalidUrl(SPLIT_PASSWORD);
  if (hash !== '') throw invalidUrl('REDIS_URL has a part behind a #, which means nothing here: leave it out.');
  let read: RedisOptions = {};
  for (const entry of query.split('&').filter((part) => part !== '')) {
    const equals = entry.indexOf('=');
    const name = equals === -1 ? entry : entry.slice(0, equals);
    const reader = Object.hasOwn(parts, name) ? parts[name] : undefined;
    if (reader === undefined)
      throw invalidUrl(
        `REDIS_URL has the part ${JSON.stringify(name)}, which Pawl does not know: it takes ${Object.keys(parts).join(', ')}.`,
      );
    read = mergeOptions(read, reader(equals === -1 ? '' : decodePart(entry.slice(equals + 1), name)));
  }
  return read;
}

/** Throws `CONFIGURATION` for a part that is named in two places. */
function mergeOptions(one: RedisOptions, other: RedisOptions): RedisOptions {
  const { tls: before = {} } = one;
  const { tls: added = {}, ...others } = other;
  const tlsParts = Object.keys(added);
  if (tlsParts.length > 0 && !tlsParts.some((part) => part in before))
    return mergeOptions({ ...one, tls: { ...before, ...added } }, others);
  const duplicate = Object.keys(other).find((part) => part in one);
  if (duplicate !== undefined) throw invalidUrl(`REDIS_URL names its ${duplicate} twice: leave one out.`);
  return { ...one, ...other };
}

function parseFlag(value: string, part: string): boolean {
  if (['true', '1', 'on', 'yes', ''].includes(value)) return true;
  if (['false', '0', 'off', 'no'].includes(value)) return false;
  throw invalidUrl(`REDIS_URL has the part ${JSON.stringify(part)}, which must be true or false.`);
}

/** A certificate or key in the PEM form. The error does not show the path: it may be the rest of a password. */
function fileOf(path: string, part: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw invalidUrl(`The file that REDIS_URL names as its ${part} cannot be read (${code}).`);
  }
}

function familyOf(value: string): number {
  if (!['0', '4', '6'].includes(value)) throw invalidUrl('REDIS_URL has the part "family", which must be 4 or 6.');
  return Number(value);
}

function decodePart(text: string, part: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw invalidUrl(`The ${part} in REDIS_URL has a % that encodes nothing: write it as %25.`);
  }
}

/** Parses the database. An error does not show it: it may be the rest of a password with a / that is not encoded. */
function databaseOf(text: string): number {
  if (!/^\d{1,9}$/.test(text))
    throw invalidUrl('The database in REDIS_URL must be a number, as in redis://host:6379/1.');
  return Number(text);
}

function invalidUrl(message: string): PawlError {
  return new PawlError('CONFIGURATION', message);
}
