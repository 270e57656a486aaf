/** The state of a server, asked for with inline commands on a connection of its own. */
import { existsSync } from 'node:fs';
import { connect as openConnection } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type DataFolder, type EmbeddedRedisOptions, type Endpoint, failure } from './data-folder.ts';

export const START_TIMEOUT_MS = 30_000;

const ANSWER_TIMEOUT_MS = 1_000;

export const POLL_MS = 5;

/** Each look at a server that reads its data takes a little of its time. */
const LOADING_POLL_MS = 50;

/** Waits until the server answers: until the deadline while it is silent, and as long as it takes while it reads its data. */
export async function awaitVersion(
  folder: DataFolder,
  endpoint: Endpoint,
  { log }: EmbeddedRedisOptions,
  deadlineMs: number,
): Promise<string> {
  let silentUntilMs = deadlineMs;
  let isTold = false;
  for (;;) {
    const state = await askState(endpoint.url);
    if (state.kind === 'ready') return state.version;
    if (state.kind === 'loading') {
      silentUntilMs = Math.max(silentUntilMs, Date.now() + START_TIMEOUT_MS);
      if (!isTold) log?.(`the embedded Redis reads its data from ${folder.home}`);
      isTold = true;
    } else if (existsSync(join(endpoint.runDir, 'failed')))
      throw await failure(folder, 'the server ends as soon as it starts');
    if (Date.now() > silentUntilMs)
      throw await failure(folder, `the server at ${redacted(endpoint.url)} does not answer`);
    await sleep(state.kind === 'loading' ? LOADING_POLL_MS : POLL_MS);
  }
}

type ServerState =
  | { readonly kind: 'ready'; readonly version: string }
  /** It reads its data, which takes as long as there is much of it. */
  | { readonly kind: 'loading' }
  | { readonly kind: 'silent' };

export async function askState(url: string): Promise<ServerState> {
  const answer = (await ask(url, 'PING', 'INFO server')) ?? '';
  if (answer.includes('-LOADING')) return { kind: 'loading' };
  const version = /redis_version:(?<version>[\w.]+)/.exec(answer)?.groups?.['version'];
  return version !== undefined && answer.includes('+PONG') ? { kind: 'ready', version } : { kind: 'silent' };
}

/**
 * Sends inline commands over a connection of their own and answers all that came back; undefined where nothing listens
 * or nothing came. A client library would reconnect and queue, which is just what must not happen here.
 */
export function ask(url: string, ...commands: readonly string[]): Promise<string | undefined> {
  const target = new URL(url);
  const address =
    target.protocol === 'unix:'
      ? { path: decodeURIComponent(target.pathname) }
      : { host: target.hostname, port: Number(target.port) };
  const all = target.password === '' ? commands : [`AUTH ${target.password}`, ...commands];
  return new Promise((done) => {
    const connection = openConnection(address);
    let text = '';
    connection.setEncoding('utf8');
    connection.setTimeout(ANSWER_TIMEOUT_MS, () => connection.destroy());
    connection.on('connect', () => connection.write([...all, 'QUIT', ''].join('\r\n')));
    connection.on('data', (chunk: string) => {
      text += chunk;
    });
    connection.on('error', () => {});
    connection.on('close', () => done(text === '' ? undefined : text));
  });
}

function redacted(url: string): string {
  return url.replace(/:[^:@/]+@/, ':***@');
}
