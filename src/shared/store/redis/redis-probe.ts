/** Finds out why a server cannot be used, on a plain socket: a client library loses what the server sends before it closes. */
import { connect as connectPlainly, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectSecurely } from 'node:tls';
import type { RedisOptions } from 'ioredis';
import { addressOf, clusterAddressOf, isCluster } from './address.ts';

/** The probe listens first: a server that refuses a client sends its error at once and closes. */
const PING_DELAY_MS = 100;
const PROBE_TIMEOUT_MS = 1_000;
const MAX_LOOKS = 4;
const CERTIFICATE_FAULT = /CERT|ALTNAME|UNABLE_TO|SELF_SIGNED|ISSUER|SIGNATURE/;
const UNKNOWN_ISSUER = /UNABLE_TO|SELF_SIGNED|ISSUER/;
/** Alerts by which a server refuses the client's certificate, or asks for one. The older protocol has a word for any handshake. */
const CLIENT_CERTIFICATE_FAULT =
  /ALERT_(?:CERTIFICATE|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE|ACCESS_DENIED)/;

/** The errors with which a server refuses a client before its first command, and what to do. */
const REFUSALS: readonly (readonly [error: RegExp, reason: string])[] = [
  [
    /max number of clients/i,
    'it has as many clients as its maxclients allows: close some, or raise it with CONFIG SET maxclients',
  ],
  [
    /in protected mode/i,
    'it is in protected mode and answers only programs on its own machine: set a password with requirepass, and name it in REDIS_URL',
  ],
];

/** An error of the server. The probe has no user, so one about its rights says nothing about the user of the address. */
const ERROR_REPLY = /^-(?!NOAUTH|NOPERM)([^\r\n]+)/;

/** The reason why a server cannot be used, as the end of a sentence; undefined when it is not known. */
export async function unusableReason(url: string): Promise<string | undefined> {
  const nodes = nodesBehind(url);
  if (nodes === undefined) return serverReason(addressOf(url));
  // For several nodes, client libraries report only that none could be used.
  const reasons = await Promise.all(nodes.map(unreachableReason));
  const known = [...new Set(reasons.filter((reason) => reason !== undefined))];
  return known.length === 0 ? undefined : known.join('; ');
}

/** The nodes of a cluster, or the Sentinels that watch a server. */
function nodesBehind(url: string): readonly RedisOptions[] | undefined {
  if (isCluster(url)) {
    const { nodes, common } = clusterAddressOf(url);
    return nodes.map((node) => ({ ...common, ...node }));
  }
  const { sentinels, sentinelTLS: tls } = addressOf(url);
  return sentinels?.map((node) => ({ ...node, ...(tls !== undefined && { tls }) }));
}

async function unreachableReason(node: RedisOptions): Promise<string | undefined> {
  const known = await serverReason(node);
  if (known !== undefined) return known;
  return (await listen(node, node.tls !== undefined)).fault;
}

async function serverReason(address: RedisOptions): Promise<string | undefined> {
  const secure = address.tls !== undefined;
  const [asConfigured, otherProtocol] = await Promise.all([
    secure ? listenSecurely(address) : listen(address, false),
    listen(address, !secure),
  ]);
  const text = asConfigured.text ?? '';
  const refusal = REFUSALS.find(([error]) => error.test(text));
  if (refusal !== undefined) return refusal[1];
  if (asConfigured.refusedClient === true)
    return `it ${address.tls?.cert === undefined ? 'asks for a client certificate' : 'refuses the client certificate'}: name its files with ?cert=/path&key=/path in REDIS_URL`;
  if (asConfigured.refusedCertificate !== undefined)
    return `its certificate is refused: ${asConfigured.refusedCertificate}`;
  const reply = ERROR_REPLY.exec(text)?.[1];
  if (reply !== undefined) return `it answers with ${JSON.stringify(reply)}`;
  if (text !== '' || otherProtocol.text === undefined) return undefined;
  if (secure)
    return otherProtocol.text === '' ? undefined : 'it does not support TLS: use redis:// in place of rediss://';
  return 'it supports only TLS: use rediss:// in place of redis://';
}

interface ProbeAnswer {
  /** The text that the server sent; undefined without a connection. */
  readonly text?: string;
  /** The reason why the server's certificate is refused. */
  readonly refusedCertificate?: string;
  /** The server asks for a client certificate, or refuses the one it got. */
  readonly refusedClient?: boolean;
  /** The error of a connection that failed. */
  readonly fault?: string;
  /** The connection was made, and ended without a word. */
  readonly isCut?: boolean;
}

/** Since TLS 1.3, a server may refuse a client after the handshake, and the alert that says so can be lost with the connection. */
async function listenSecurely(address: RedisOptions): Promise<ProbeAnswer> {
  let answer = await listen(address, true);
  for (let looks = 1; answer.isCut === true && looks < MAX_LOOKS; looks += 1) answer = await listen(address, true);
  return answer;
}

/** Connects and returns what the server sends by itself, or as the answer to a PING. No name or password is sent. */
function listen({ path, host, port, family, tls }: RedisOptions, secure: boolean): Promise<ProbeAnswer> {
  if (path && secure) return Promise.resolve({});
  const target = path ? { path } : { host, port: port ?? 6379, ...(family !== undefined && { family }) };
  return new Promise((resolve) => {
    // Without TLS in the address, the certificate does not matter.
    const checks: ConnectionOptions = typeof tls === 'object' ? tls : { rejectUnauthorized: false };
    const socket: Socket = secure
      ? connectSecurely({ ...(target as { host?: string; port: number }), ...checks })
      : connectPlainly(target as { host: string; port: number });
    let text = '';
    let refusedCertificate: string | undefined;
    let fault: string | undefined;
    let refusedClient = false;
    let connected = false;
    let timer = setTimeout(() => {
      socket.write('PING\r\n');
      // A busy process first reads the answer that has arrived.
      timer = setTimeout(() => setImmediate(end), PROBE_TIMEOUT_MS);
    }, PING_DELAY_MS);
    const end = () => {
      clearTimeout(timer);
      socket.destroy();
      if (refusedClient) resolve({ text, refusedClient });
      else if (refusedCertificate !== undefined) resolve({ text, refusedCertificate });
      else if (connected) resolve({ text, isCut: text === '' && fault !== undefined });
      else resolve(fault === undefined ? {} : { fault });
    };
    socket.setEncoding('utf8');
    socket.once(secure ? 'secureConnect' : 'connect', () => {
      connected = true;
    });
    socket.on('data', (chunk: string) => {
      text += chunk;
      if (text.includes('\n')) end();
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      const code = error.code ?? '';
      if (CLIENT_CERTIFICATE_FAULT.test(code)) refusedClient = true;
      else if (CERTIFICATE_FAULT.test(code))
        refusedCertificate = UNKNOWN_ISSUER.test(code)
          ? `${error.message}; ${checks.ca === undefined ? 'name the file of its authority with ?ca=/path in REDIS_URL' : 'ca in REDIS_URL names the file of another authority'}`
          : error.message;
      fault = error.message;
      end();
    });
    socket.on('close', end);
  });
}
