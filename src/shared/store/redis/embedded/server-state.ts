/** Reads the state of a server with inline commands on a connection of its own. */
import { existsSync } from 'node:fs';
import { connect as openConnection } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type DataFolder, type EmbeddedRedisOptions, type Endpoint, failure } from './data-folder.ts';

export const START_TIMEOUT_MS = 30_000;

const ANSWER_TIMEOUT_MS = 1_000;

export const POLL_MS = 5;

/** Slower while the server loads its data, because each poll takes some of its time. */
const LOADING_POLL_MS = 50;

/** Waits until the server answers: up to the deadline while it is silent, and without limit while it loads its data. */
export async function awaitAnswer(
  folder: DataFolder,
  endpoint: Endpoint,
  { log }: EmbeddedRedisOptions,
  deadlineMs: number,
): Promise<void> {
  let silentUntilMs = deadlineMs;
  let isLogged = false;
  for (;;) {
    const state = await readState(endpoint.url);
    if (state === 'ready') return;
    if (state === 'loading') {
      silentUntilMs = Math.max(silentUntilMs, Date.now() + START_TIMEOUT_MS);
      if (!isLogged) log?.(`the embedded Redis reads its data from ${folder.home}`);
      isLogged = true;
    } else if (existsSync(join(endpoint.runDir, 'failed')))
      throw await failure(folder, 'the server ends as soon as it starts');
    if (Date.now() > silentUntilMs)
      throw await failure(folder, `the server at ${redacted(endpoint.url)} does not answer`);
    await sleep(state === 'loading' ? LOADING_POLL_MS : POLL_MS);
  }
}

/** `loading`: the server loads its data, which may take long. */
export async function readState(url: string): Promise<'ready' | 'loading' | 'silent'> {
  const answer = (await sendInline(url, 'PING', 'INFO server')) ?? '';
  // Only PING says that the server loads its data. A server whose disk is full refuses PING as well, and answers all the same.
  if (answer.includes('-LOADING')) return 'loading';
  return /redis_version:\w/.test(answer) ? 'ready' : 'silent';
}

/**
 * Sends inline commands over a new connection, and returns the server's answers; undefined when there is none. A client library would
 * reconnect and queue commands, which must not happen here.
 */
export function sendInline(url: string, ...commands: readonly string[]): Promise<string | undefined> {
  const target = new URL(url);
  const address =
    target.protocol === 'unix:'
      ? { path: decodeURIComponent(target.pathname) }
      : { host: target.hostname, port: Number(target.port) };
  const lines = target.password === '' ? commands : [`AUTH ${target.password}`, ...commands];
  return new Promise((done) => {
    const connection = openConnection(address);
    let text = '';
    connection.setEncoding('utf8');
    connection.setTimeout(ANSWER_TIMEOUT_MS, () => connection.destroy());
    connection.on('connect', () => connection.write([...lines, 'QUIT', ''].join('\r\n')));
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
