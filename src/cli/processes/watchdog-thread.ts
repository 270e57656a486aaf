/**
 * The thread of a process that watches its main thread (`watchdog.ts`). In a worker or a front door, it checks that the main event loop
 * turns, ends the process when the loop was blocked for too long, and answers health requests meanwhile. While a tools file is loaded, it
 * limits the time of that. It imports only Node's modules, to stay small.
 */
import { writeSync } from 'node:fs';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { constants } from 'node:os';
import { isMainThread, parentPort, workerData } from 'node:worker_threads';

export interface WatchdogData {
  readonly process: 'worker' | 'server';
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

/** A file that the main thread loads. */
export interface LoadingData {
  /** The subject of a sentence. */
  readonly file: string;
  readonly reportedAfterMs: number;
  readonly endedAfterMs: number;
  readonly exitCode: number;
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

declare const WebAssembly: { readonly Memory: new (size: { readonly initial: number }) => object };

/** The main thread must answer a forwarded request within this time. */
const ANSWER_LIMIT_MS = 5_000;

const ALIVE = JSON.stringify({ status: 'ok' });

if (!isMainThread && parentPort !== null) {
  const data = workerData as WatchdogData | LoadingData;
  if ('file' in data) watchLoading(data);
  else watch(data);
}

function watchLoading({ file, reportedAfterMs, endedAfterMs, exitCode }: LoadingData): void {
  setTimeout(() => {
    writeError(`pawl: ${file} is still being loaded, after ${reportedAfterMs / 1_000} s. Ctrl-C ends this process.\n`);
  }, reportedAfterMs);
  setTimeout(() => {
    const cause = 'its top level loops without an end, or waits for something that does not come';
    writeError(`pawl: ${file} was not loaded within ${endedAfterMs / 1_000} s: ${cause}.\n`);
    endProcess(exitCode);
  }, endedAfterMs);
}

/** `process.exit` of a thread ends only the thread; the exit of a WebAssembly program ends the process, with its exit code. */
function endProcess(code: number): void {
  process.removeAllListeners('warning');
  const { WASI } = process.getBuiltinModule('node:wasi');
  const program = new WASI({ version: 'preview1', returnOnExit: false });
  program.initialize({ exports: { memory: new WebAssembly.Memory({ initial: 1 }) } });
  (program.wasiImport as { proc_exit(code: number): never }).proc_exit(code);
}

function watch(data: WatchdogData): void {
  const { beats, pulseMs, checkEveryMs, stalledAfterMs, killedAfterMs } = data;
  const counters = new Int32Array(beats);
  setInterval(() => Atomics.add(counters, 2, 1), pulseMs);
  let previousBeat = 0;
  let silentMs = 0;
  const holder = data.process === 'worker' ? 'a tool' : 'a hook or a toolset';
  const reason = () => `${holder} has held the event loop for ${Math.round(silentMs / 1_000)} s`;
  // Silence is counted in checks, so that a sleeping machine or a stopped process does not count as silent.
  setInterval(() => {
    const beat = Atomics.load(counters, 0);
    const isSilent = beat === previousBeat && Atomics.load(counters, 1) === 1;
    silentMs = isSilent ? silentMs + checkEveryMs : 0;
    previousBeat = beat;
    if (silentMs >= killedAfterMs) kill(data.process, reason());
  }, checkEveryMs);
  parentPort?.once('message', (listen: WatchdogListen) => {
    const server = createServer((incoming, response) => {
      const isWatched = Atomics.load(counters, 1) === 1;
      if (silentMs >= stalledAfterMs) refuse(response, reason());
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

/** Kills this process. The first process of a container cannot be killed from inside, but can exit. */
function kill(kind: WatchdogData['process'], reason: string): void {
  const message = `${reason}: this ${kind} ends`;
  writeError(`${JSON.stringify({ level: 50, event: `${kind}_stalled`, pid: process.pid, msg: message })}\n`);
  process.kill(process.pid, 'SIGKILL');
  endProcess(128 + constants.signals.SIGKILL);
}

function writeError(line: string): void {
  try {
    writeSync(2, line);
  } catch {
    // Standard error may be closed.
  }
}
