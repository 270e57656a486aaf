/** Ends of calls that are posted to a receiver that is down at first, while the workers that post them and Redis are killed. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Ask } from '../protocol.ts';
import { passes, type Row } from './row.ts';

export interface CallbackRowOptions {
  readonly calls: number;
  readonly kills: number;
}

const FULL_CALLS = 300;
const AT_A_TIME = 4;
const KILL_EVERY_MS = 1_000;
const AWAY_MS = 500;
/** A callback that failed is sent again after some seconds, and one of a killed worker after 30 s. */
const POSTED_MS = 90_000;

export function callbackRow({ calls, kills }: CallbackRowOptions): Row {
  return {
    number: 52,
    fault: `${calls} calls whose ends are posted: the receiver is down for the first half of them, ${kills} workers are killed, Redis is restarted`,
    env: { PAWL_ALLOWED_HOSTS: '127.0.0.1' },
    async run(rig) {
      await using receiver = await openReceiver();
      const env = { CALLBACK_URL: receiver.url };
      const [door] = await Promise.all([rig.producer(env), rig.worker(env), rig.worker(env)]);
      const asks = Array.from({ length: calls }, (_, number): Ask => {
        const key = `told-${number}`;
        return { tool: 'record_idempotent', key, params: { label: key, beforeMs: 250 } };
      });
      const queue = asks.values();
      let answered = 0;
      const asking = Promise.all(
        Array.from({ length: AT_A_TIME }, async () => {
          for (const ask of queue) {
            await rig.persist(door, ask);
            answered += 1;
            if (answered >= calls / 2) receiver.takes = true;
          }
        }),
      );
      for (let killed = 0; killed < kills; killed += 1) {
        await passes(KILL_EVERY_MS);
        await rig.workers[killed]?.kill();
        await rig.worker(env);
        if (killed !== Math.floor(kills / 2)) continue;
        await rig.server.kill();
        await passes(AWAY_MS);
        await rig.server.start();
      }
      await asking;
      rig.healed();
      await rig.settle();
      const ended = rig.history.calls.filter(({ callId }) => callId !== undefined).length;
      const endMs = performance.now() + (rig.stack === 'pawl' ? POSTED_MS : 2_000);
      while (receiver.idsOf.size < ended && performance.now() < endMs) await passes(100);
      const twice = [...receiver.idsOf.values()].filter((ids) => ids.size > 1).length;
      rig.bound('I8', 'ends that were not posted', ended - receiver.idsOf.size, 0);
      rig.bound('I7', 'ends that were posted under two IDs', twice, 0);
      rig.notes.push(`${receiver.idsOf.size} of ${ended} ends arrived`);
    },
    ...(calls === FULL_CALLS ? {} : { atFullSize: () => callbackRow({ calls: FULL_CALLS, kills: 10 }) }),
  };
}

interface Receiver extends AsyncDisposable {
  readonly url: string;
  /** The message IDs that were taken for each call. */
  readonly idsOf: ReadonlyMap<string, ReadonlySet<string>>;
  takes: boolean;
}

async function openReceiver(): Promise<Receiver> {
  const idsOf = new Map<string, Set<string>>();
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (part: string) => {
      body += part;
    });
    request.on('end', () => {
      if (!receiver.takes) return void response.writeHead(503).end();
      const { data } = JSON.parse(body) as { readonly data: { readonly callId: string } };
      const ids = idsOf.get(data.callId) ?? new Set<string>();
      idsOf.set(data.callId, ids.add(String(request.headers['webhook-id'])));
      response.end();
    });
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const receiver: Receiver = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    idsOf,
    takes: false,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
  return receiver;
}

export const callbackRows: readonly Row[] = [callbackRow({ calls: 60, kills: 4 })];
