/** Why a server cannot be used, asked on a connection of its own: what it says before it hangs up is lost to a client library. */
import { connect as connectPlainly, type Socket } from 'node:net';
import { connect as connectSecurely } from 'node:tls';
import type { RedisOptions } from 'ioredis';
import { addressOf, clusterAddressOf, isCluster } from './address.ts';

/** A server that refuses a client says so at once, and only then would a question be lost. */
const LISTEN_FIRST_MS = 100;
const PROBE_TIMEOUT_MS = 1_000;
const CERTIFICATE_FAULT = /CERT|ALTNAME|UNABLE_TO|SELF_SIGNED|ISSUER|SIGNATURE/;

/** A sentence about what stands behind an address; undefined where nothing is known. */
export async function whyUnusable(url: string): Promise<string | undefined> {
  const nodes = nodesBehind(url);
  if (nodes === undefined) return whyUnusableServer(addressOf(url));
  // Client libraries say of several nodes only that none could be used.
  const reasons = await Promise.all(nodes.map(whyUnreachable));
  const known = [...new Set(reasons.filter((reason) => reason !== undefined))];
  return known.length === 0 ? undefined : known.join('; ');
}

/** The nodes of a cluster, or the Sentinels that know a server. */
function nodesBehind(url: string): readonly RedisOptions[] | undefined {
  if (isCluster(url)) {
    const { nodes, common } = clusterAddressOf(url);
    return nodes.map((node) => ({ ...common, ...node }));
  }
  const { sentinels, sentinelTLS: tls } = addressOf(url);
  return sentinels?.map((node) => ({ ...node, ...(tls === undefined ? {} : { tls }) }));
}

async function whyUnreachable(node: RedisOptions): Promise<string | undefined> {
  const known = await whyUnusableServer(node);
  if (known !== undefined) return known;
  return (await listen(node, node.tls !== undefined)).fault;
}

async function whyUnusableServer(address: RedisOptions): Promise<string | undefined> {
  const secure = address.tls !== undefined;
  const [own, other] = await Promise.all([listen(address, secure), listen(address, !secure)]);
  const said = own.text ?? '';
  if (/max number of clients/i.test(said))
    return 'it has as many clients as its maxclients allows: close some, or raise it with CONFIG SET maxclients';
  if (own.refusedCertificate !== undefined) return `its certificate is refused: ${own.refusedCertificate}`;
  if (said !== '' || other.text === undefined) return undefined;
  if (secure) return other.text === '' ? undefined : 'it speaks no TLS: use redis:// in place of rediss://';
  return 'it speaks TLS alone: use rediss:// in place of redis://';
}

interface Heard {
  /** The text that the server sent; undefined without a connection. */
  readonly text?: string;
  /** Why the server's certificate does not hold. */
  readonly refusedCertificate?: string;
  /** Why there was no connection. */
  readonly fault?: string;
}

/**
 * Connects and returns what the server sends by itself, or as the answer to a PING. No name or password is sent.
 */
function listen({ path, host, port, family, tls }: RedisOptions, secure: boolean): Promise<Heard> {
  if (path && secure) return Promise.resolve({});
  const target = path ? { path } : { host, port: port ?? 6379, ...(family === undefined ? {} : { family }) };
  return new Promise((resolve) => {
    // Without TLS in the address, the certificate does not matter.
    const checks = typeof tls === 'object' ? tls : { rejectUnauthorized: false };
    const socket: Socket = secure
      ? connectSecurely({ ...(target as { host?: string; port: number }), ...checks })
      : connectPlainly(target as { host: string; port: number });
    let text = '';
    let refusedCertificate: string | undefined;
    let fault: string | undefined;
    let connected = false;
    const ask = setTimeout(() => socket.write('PING\r\n'), LISTEN_FIRST_MS);
    const end = () => {
      clearTimeout(ask);
      clearTimeout(late);
      socket.destroy();
      if (refusedCertificate !== undefined) resolve({ text, refusedCertificate });
      else if (connected) resolve({ text });
      else resolve(fault === undefined ? {} : { fault });
    };
    const late = setTimeout(end, PROBE_TIMEOUT_MS);
    socket.setEncoding('utf8');
    socket.once(secure ? 'secureConnect' : 'connect', () => {
      connected = true;
    });
    socket.on('data', (chunk: string) => {
      text += chunk;
      if (text.includes('\n')) end();
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (CERTIFICATE_FAULT.test(error.code ?? '')) refusedCertificate = error.message;
      fault = error.message;
      end();
    });
    socket.on('close', end);
  });
}
