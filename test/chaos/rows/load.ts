/** More than fits: backlogs, large payloads, deadlines, a service that is down. */
import { existsSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { eventually } from '../../helpers/signal.ts';
import type { Ask } from '../protocol.ts';
import type { Rig } from '../rig.ts';
import { mixedAsks, passes, type Row } from './row.ts';

const FLOOD = 2_000;
const INTERACTIVE = 5;
/** What a person notices. */
const INTERACTIVE_MS = 1_500;

const backlog: Row = {
  number: 31,
  fault: `a backlog of ${FLOOD} calls of one session, then ${INTERACTIVE} of another`,
  async run(rig) {
    const [flooder, person] = await Promise.all([rig.producer(), rig.producer(), rig.worker()]);
    const ask = (session: string, number: number, params: Ask['params']): Ask => {
      const key = `${session}-${number}`;
      return { tool: 'record_once', key, session, params: { label: key, ...params } };
    };
    const flood = Array.from({ length: FLOOD }, (_, number) =>
      flooder.call(ask('flood', number, { beforeMs: rig.random.between(20, 30) })),
    );
    await eventually(() => rig.history.calls.filter(({ callId }) => callId !== undefined).length === FLOOD, {
      what: 'a backlog',
    });
    rig.healed();
    let slowestMs = 0;
    for (let number = 0; number < INTERACTIVE; number += 1) {
      const askedAtMs = performance.now();
      await person.call(ask('person', number, {}));
      slowestMs = Math.max(slowestMs, performance.now() - askedAtMs);
    }
    rig.bound('I9', 'ms of the slowest call beside the backlog', Math.round(slowestMs), INTERACTIVE_MS);
    rig.notes.push(`slowest beside it ${Math.round(slowestMs)} ms`);
    await Promise.all(flood);
    await rig.settle();
  },
};

const MEGABYTE = 1_024 * 1_024;

const large: Row = {
  number: 32,
  fault: 'results of 1 MB and 16 MB, parameters of 8 MB, deep and broken text',
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker()]);
    const result = (key: string, bytes: number): Ask => ({ tool: 'produce', key, params: { bytes } });
    const text = (key: string, label: string): Ask => ({ tool: 'record_once', key, params: { label } });
    const asks = [
      ...Array.from({ length: 20 }, (_, number) => result(`large-${number}`, MEGABYTE)),
      result('huge', 16 * MEGABYTE),
      text('long', 'x'.repeat(8 * MEGABYTE)),
      text('broken', 'lone \ud800 surrogate'),
      {
        ...text('deep', 'deep'),
        params: { label: 'deep', deep: JSON.parse(`${'['.repeat(2_000)}${']'.repeat(2_000)}`) },
      },
      ...mixedAsks(rig, 12),
    ];
    rig.healed();
    await Promise.all(asks.map((ask) => rig.persist(producer, ask)));
    await rig.settle();
    rig.bound('I9', 'dead workers', rig.workers.filter(({ alive }) => !alive).length, 0);
  },
};

const DEADLINE_MS = 700;
/** Clocks of two processes, and a timer's delay. */
const LATE_MS = 100;

const lateStarts: Row = {
  number: 33,
  fault: 'deadlines that pass in the queue, behind slow calls',
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker({ CONCURRENCY: '1' })]);
    const slow = Array.from({ length: 3 }, (_, number) => {
      const key = `slow-${number}`;
      return producer.call({ tool: 'record_once', key, params: { label: key, beforeMs: 600 } });
    });
    await rig.reached('slow-0', 'begin');
    const askedAtMs = Number(process.hrtime.bigint()) / 1e6;
    const hasty = Array.from({ length: 8 }, (_, number) => {
      const key = `hasty-${number}`;
      return producer.call({ tool: 'record_once', key, params: { label: key }, timeoutMs: DEADLINE_MS });
    });
    await Promise.all([...slow, ...hasty]);
    rig.healed();
    await rig.settle();
    const late = rig
      .effects()
      .filter(
        ({ key, phase, mono }) =>
          key.startsWith('hasty-') && phase === 'begin' && mono > askedAtMs + DEADLINE_MS + LATE_MS,
      );
    rig.bound('I7', 'starts after the deadline', late.length, 0);
    rig.notes.push(`${late.length} late starts`);
  },
};

type Behaviour = 'up' | 'down' | 'hold';

interface Service extends AsyncDisposable {
  readonly url: string;
  /** Whom it held it answers as soon as it behaves otherwise. */
  behave(behaviour: Behaviour): void;
  /** The process IDs of the workers that came by. */
  readonly visits: number[];
}

async function startService(): Promise<Service> {
  let behaviour: Behaviour = 'down';
  const visits: number[] = [];
  const held = new Set<ServerResponse>();
  const answer = (response: ServerResponse) =>
    void response.writeHead(behaviour === 'up' ? 200 : 503, { connection: 'close' }).end(behaviour);
  const server = createServer((request, response) => {
    visits.push(Number(request.headers['x-pid']));
    if (behaviour === 'hold') held.add(response);
    else answer(response);
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    behave: (next) => {
      behaviour = next;
      if (next === 'hold') return;
      for (const response of held) answer(response);
      held.clear();
    },
    visits,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}

function asksFor(tool: string, url: string, count: number, prefix = 'visit'): Ask[] {
  return Array.from({ length: count }, (_, number) => ({ tool, key: `${prefix}-${number}`, params: { url } }));
}

/** As many open a circuit. */
const CONSECUTIVE_FAILURES = 5;
const CALLS_TO_SERVICE = 200;
const RETRY_FLOOR = 3;

const serviceDown: Row = {
  number: 34,
  fault: `a service that is down, ${CALLS_TO_SERVICE} calls to it from four workers`,
  async run(rig) {
    await using service = await startService();
    const [producer] = await Promise.all([rig.producer(), ...Array.from({ length: 4 }, () => rig.worker())]);
    rig.healed();
    const asks = asksFor('ask_or_refuse', service.url, CALLS_TO_SERVICE);
    await Promise.all(asks.map((ask) => rig.persist(producer, ask)));
    await rig.settle();
    const { length: visits } = service.visits;
    rig.bound('I7', 'calls that reached the service', visits, 1.2 * CALLS_TO_SERVICE + RETRY_FLOOR);
    rig.notes.push(`${visits} requests`);
  },
};

const proberKilled: Row = {
  number: 35,
  fault: 'kill -9 of the worker that probes a half-open circuit',
  async run(rig) {
    await using service = await startService();
    const [producer] = await Promise.all([rig.producer(), rig.worker(), rig.worker()]);
    const pending = asksFor('ask_or_park', service.url, 20).map((ask) => rig.persist(producer, ask));
    await quiet(rig, service);
    service.behave('hold');
    const seen = service.visits.length;
    pending.push(...asksFor('ask_or_park', service.url, 5, 'later').map((ask) => rig.persist(producer, ask)));
    const prober = await eventually(() => service.visits[seen], { what: 'a probe' });
    await rig.workers.find(({ pid }) => pid === prober)?.kill();
    rig.notes.push(`${service.visits.length - seen} requests while half-open`);
    service.behave('up');
    rig.healed();
    await rig.settle(pending);
  },
};

/** Debian's `faketime`, which lies to every system call; without it, only to JavaScript. */
const FAKETIME = ['/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1', '/usr/lib/faketime/libfaketimeMT.so.1'];
const HOUR_MS = 3_600_000;

export function wrongBy(hours: 1 | -1): Readonly<Record<string, string>> {
  const library = FAKETIME.find((file) => existsSync(file));
  if (library === undefined) return { CLOCK_SKEW_MS: String(hours * HOUR_MS) };
  return { LD_PRELOAD: library, FAKETIME: hours === 1 ? '+1h' : '-1h', FAKETIME_DONT_FAKE_MONOTONIC: '1' };
}

const wrongClock: Row = {
  number: 21,
  fault: "workers whose clocks are an hour ahead and an hour behind postpone calls, and are killed; so is the caller's",
  async run(rig) {
    await using service = await startService();
    const [producer, late, ahead, behind] = await Promise.all([
      rig.producer(),
      rig.producer(wrongBy(-1)),
      rig.worker(wrongBy(1)),
      rig.worker(wrongBy(-1)),
    ]);
    const timely = mixedAsks(rig, 12).map((ask, number) =>
      rig.persist(number % 2 === 0 ? producer : late, { ...ask, timeoutMs: 5_000 }),
    );
    const told = await Promise.all(timely);
    rig.bound('I7', 'timely calls that a wrong clock ended', told.filter(({ kind }) => kind !== 'ok').length, 0);
    const pending = asksFor('ask_or_park', service.url, 8).map((ask) => rig.persist(producer, ask));
    await eventually(() => service.visits.length >= CONSECUTIVE_FAILURES, { what: 'requests' });
    // Long enough to be postponed, too short to be tried again.
    await passes(150);
    await Promise.all([ahead.kill(), behind.kill()]);
    service.behave('up');
    rig.healed();
    await rig.worker();
    await rig.settle(pending);
  },
};

/** Nobody has visited for a moment. */
async function quiet(rig: Rig, service: Service): Promise<void> {
  await eventually(() => service.visits.length >= CONSECUTIVE_FAILURES, { what: 'requests' });
  for (let visits = -1; visits !== service.visits.length; await passes(300)) visits = service.visits.length;
  rig.notes.push(`${service.visits.length} requests until it was left alone`);
}

export const loadRows: readonly Row[] = [backlog, large, lateStarts, serviceDown, proberKilled, wrongClock];
