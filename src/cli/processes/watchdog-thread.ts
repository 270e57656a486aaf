/**
 * The thread of a worker process that watches its main thread (`watchdog.ts`). It checks that the main event loop turns, ends the process
 * when the loop was blocked for too long, and answers health requests meanwhile. It imports only Node's modules, to stay small.
 */
import { writeSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';

export interface WatchdogData {
  /**
   * The main thread increments the first number whenever its event loop turns. The second number is 1 while it is watched. This thread
   * increments the third one.
   */
  readonly beats: SharedArrayBuffer;
  readonly pulseMs: number;
  readonly checkEveryMs: number;
  /** `/healthz` fails after this much silence. */
  readonly stalledAfterMs: number;
  readonly killedAfterMs: number;
}

/** The address at which this thread answers `/healthz`, and the main thread's port for everything else. */
export interface WatchdogListen {
  readonly host: string;
  readonly port: number;
  readonly mainPort: number;
}

export type WatchdogAnswer = { readonly port: number } | { readonly error: string };

/** An import would load the WebSocket of node:http as well, which costs a worker's start 40 ms. */
const { createServer, request } = process.getBuiltinModule('node:http');

/** The main thread must answer a forwarded request within this time. */
const ANSWER_LIMIT_MS = 5_000;

const ALIVE = JSON.stringify({ status: 'ok' });

if (!isMainThread && parentPort !== null) watch(workerData as WatchdogData);

function watch({ beats, pulseMs, checkEveryMs, stalledAfterMs, killedAfterMs }: WatchdogData): void {
  const counters = new Int32Array(beats);
  setInterval(() => Atomics.add(counters, 2, 1), pulseMs);
  let previousBeat = 0;
  let silentMs = 0;
  // Silence is counted in checks, so that a sleeping machine or a stopped process does not count as silent.
  setInterval(() => {
    const beat = Atomics.load(counters, 0);
    const isSilent = beat === previousBeat && Atomics.load(counters, 1) === 1;
    silentMs = isSilent ? silentMs + checkEveryMs : 0;
    previousBeat = beat;
    if (silentMs >= killedAfterMs) kill(silentMs);
  }, checkEveryMs);
  parentPort?.once('message', (listen: WatchdogListen) => {
    const server = createServer((incoming, response) => {
      const isWatched = Atomics.load(counters, 1) === 1;
      if (silentMs >= stalledAfterMs)
        refuse(response, `a tool has held the event loop for ${Math.round(silentMs / 1_000)} s`);
      else if (isWatched && isLiveness(incoming)) response.setHeader('content-type', 'application/json').end(ALIVE);
      else forwardRequest(incoming, response, listen.mainPort);
    });
    server.on('error', ({ message }) => parentPort?.postMessage({ error: message } satisfies WatchdogAnswer));
    server.listen(listen.port, listen.host, () => {
      const { port } = server.address() as AddressInfo;
      parentPort?.postMessage({ port } satisfies WatchdogAnswer);
    });
  });
}

/** Only `/healthz` is answered here. A tool may block the event loop for a moment without ending its process. */
function isLiveness({ method, url }: IncomingMessage): boolean {
  return (method === 'GET' || method === 'HEAD') && url?.split('?')[0] === '/healthz';
}

function forwardRequest(incoming: IncomingMessage, response: ServerResponse, port: number): void {
  const { method, url: path, headers } = incoming;
  const outgoing = request({ host: '127.0.0.1', port, method, path, headers, timeout: ANSWER_LIMIT_MS }, (answer) => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
  });
  outgoing.on('timeout', () => outgoing.destroy(new Error('the event loop does not turn')));
  outgoing.on('error', ({ message }) => (response.headersSent ? response.destroy() : refuse(response, message)));
  incoming.pipe(outgoing);
}

function refuse(response: ServerResponse, reason: string): void {
  response.writeHead(503, { 'content-type': 'application/json', 'retry-after': '1', connection: 'close' });
  response.end(JSON.stringify({ status: 'stalled', reason }));
}

/** Kills this process. The first process of a container cannot be killed from inside; there, `/healthz` reports the failure. */
function kill(silentMs: number): void {
  const message = `a tool has held the event loop for ${Math.round(silentMs / 1_000)} s: this worker ends`;
  try {
    writeSync(2, `${JSON.stringify({ level: 50, event: 'worker_stalled', pid: process.pid, msg: message })}\n`);
  } catch {
    // Standard error may be closed.
  }
  process.kill(process.pid, 'SIGKILL');
}
