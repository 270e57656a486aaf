/**
 * The thread of a worker process that watches its main thread (`watchdog.ts`): it sees whether that one's event loop turns, ends
 * the process when it has stood still for too long, and answers for it meanwhile. Imports nothing but Node, to stay small.
 */
import { writeSync } from 'node:fs';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';

export const WATCHDOG_THREAD = new URL(import.meta.url);

export interface WatchdogData {
  /** The main thread adds to the first number whenever its event loop turns. The second is 1 once it is to be watched. */
  readonly beats: SharedArrayBuffer;
  readonly everyMs: number;
  /** `/healthz` fails from then on. */
  readonly stalledAfterMs: number;
  readonly killedAfterMs: number;
}

/** Where `/healthz` is answered, and who answers everything else. */
export interface WatchdogListen {
  readonly host: string;
  readonly port: number;
  readonly mainPort: number;
}

export type WatchdogListens = { readonly port: number } | { readonly error: string };

/** The main thread answers what is passed on within that time, or does not. */
const ANSWER_LIMIT_MS = 5_000;

const ALIVE = JSON.stringify({ status: 'ok' });

if (!isMainThread && parentPort !== null) watch(workerData as WatchdogData);

function watch({ beats, everyMs, stalledAfterMs, killedAfterMs }: WatchdogData): void {
  const numbers = new Int32Array(beats);
  let last = 0;
  let silentMs = 0;
  // Counted in looks: a machine that sleeps, or a process that is stopped, is not silent.
  setInterval(() => {
    const beat = Atomics.load(numbers, 0);
    const isSilent = beat === last && Atomics.load(numbers, 1) === 1;
    silentMs = isSilent ? silentMs + everyMs : 0;
    last = beat;
    if (silentMs >= killedAfterMs) kill(silentMs);
  }, everyMs);
  parentPort?.once('message', (listen: WatchdogListen) => {
    const server = createServer((incoming, response) => {
      const isWatched = Atomics.load(numbers, 1) === 1;
      if (silentMs >= stalledAfterMs)
        refuse(response, `a tool has held the event loop for ${Math.round(silentMs / 1_000)} s`);
      else if (isWatched && isLiveness(incoming)) response.setHeader('content-type', 'application/json').end(ALIVE);
      else skipWorker(incoming, response, listen.mainPort);
    });
    server.on('error', ({ message }) => parentPort?.postMessage({ error: message } satisfies WatchdogListens));
    server.listen(listen.port, listen.host, () => {
      const { port } = server.address() as AddressInfo;
      parentPort?.postMessage({ port } satisfies WatchdogListens);
    });
  });
}

/** A tool that holds the event loop for a moment is no reason to end its process. */
function isLiveness({ method, url }: IncomingMessage): boolean {
  return (method === 'GET' || method === 'HEAD') && url?.split('?')[0] === '/healthz';
}

function skipWorker(incoming: IncomingMessage, response: ServerResponse, port: number): void {
  const { method, url: path, headers } = incoming;
  const asked = request({ host: '127.0.0.1', port, method, path, headers, timeout: ANSWER_LIMIT_MS }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  asked.on('timeout', () => asked.destroy(new Error('the event loop does not turn')));
  asked.on('error', ({ message }) => (response.headersSent ? response.destroy() : refuse(response, message)));
  incoming.pipe(asked);
}

function refuse(response: ServerResponse, reason: string): void {
  response.writeHead(503, { 'content-type': 'application/json', 'retry-after': '1', connection: 'close' });
  response.end(JSON.stringify({ status: 'stalled', reason }));
}

/** The first process of a container cannot be killed from inside: there, `/healthz` has to tell whoever started it. */
function kill(silentMs: number): void {
  const message = `a tool has held the event loop for ${Math.round(silentMs / 1_000)} s: this worker ends`;
  try {
    writeSync(2, `${JSON.stringify({ level: 50, event: 'worker_stalled', pid: process.pid, msg: message })}\n`);
  } catch {
    // Nobody reads it.
  }
  process.kill(process.pid, 'SIGKILL');
}
