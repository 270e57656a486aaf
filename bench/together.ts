/** The load of a producer that makes its calls as batches or plans: the same calls that `runLoad` makes one by one. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Session } from '../src/index.ts';
import { cpuMs } from './child.ts';
import type { Lanes, Load, LoadReport } from './protocol.ts';
import { replyText } from './reply-text.ts';
import { quantile } from './statistics.ts';

/** Calls of one batch or plan. */
export const TOGETHER = 1_000;

/** The calls of one batch or plan, of which so many are in flight; the answer is how many succeeded. */
type Make = (session: Session, params: Readonly<Record<string, unknown>>, concurrency: number) => Promise<number>;

const MAKERS: Readonly<Record<NonNullable<Load['together']>, Make>> = {
  batch: async (session, params, concurrency) => {
    const calls = Array.from({ length: TOGETHER }, () => ({ tool: 'reply', params }));
    const results = await session.batch(calls, { concurrency });
    return results.filter(({ status }) => status === 'success').length;
  },
  plan: (session, params, concurrency) => planned(session, concurrency, () => ({ tool: 'reply', params })),
  references: (session, params, concurrency) =>
    planned(session, concurrency, (at) => ({
      tool: 'reply',
      params: at % 2 === 0 ? params : { ...params, note: { $from: `n${at - 1}.text` } },
    })),
  chain: (session, params, concurrency) =>
    planned(session, concurrency, (at) => ({
      tool: 'reply',
      params,
      ...(at === 0 ? {} : { after: [`n${at - 1}`] }),
    })),
  each: async (session, params, concurrency) => {
    const each = { tool: 'reply', forEach: { $from: 'list.items' }, params: { ...params, note: { $from: 'item' } } };
    const list = { tool: 'list', params: { length: TOGETHER } };
    const { nodes } = await session.plan({ nodes: { list, each }, concurrency });
    return succeeded(nodes) - 1;
  },
};

/** What the references of such a plan add to the parameters of its call with this number. */
export function noteOf(kind: Load['together'], bytes: number, at: number): { readonly note?: string } {
  if (kind === 'each') return { note: `item ${at}` };
  return kind === 'references' && at % 2 === 1 ? { note: replyText(bytes) } : {};
}

async function planned(session: Session, concurrency: number, nodeAt: (at: number) => object): Promise<number> {
  const entries = Array.from({ length: TOGETHER }, (_, at) => [`n${at}`, nodeAt(at)] as const);
  const { nodes } = await session.plan({ nodes: Object.fromEntries(entries) as never, concurrency });
  return succeeded(nodes);
}

function succeeded(nodes: Awaited<ReturnType<Session['plan']>>['nodes']): number {
  return Object.values(nodes)
    .flatMap(({ calls }) => calls)
    .filter(({ status }) => status === 'success').length;
}

export async function runTogether(session: Session, load: Load): Promise<LoadReport> {
  const { inFlight, until } = load.pace as Lanes;
  const calls = (until as { readonly calls: number }).calls;
  const make = MAKERS[load.together ?? 'plan'];
  const latenciesMs: number[] = [];
  await sleep(Math.max(0, load.startAtMs - Date.now()));
  const cpuAtStart = process.cpuUsage();
  const startedMs = performance.now();
  for (let made = 0; made < calls; made += TOGETHER) {
    const sinceMs = performance.now();
    const ended = await make(session, { bytes: load.resultBytes, ms: 0 }, inFlight);
    if (ended !== TOGETHER) throw new Error(`${ended} of ${TOGETHER} calls succeeded`);
    latenciesMs.push(performance.now() - sinceMs);
  }
  return {
    calls,
    elapsedMs: performance.now() - startedMs,
    cpuMs: cpuMs(cpuAtStart),
    p50Ms: quantile(latenciesMs, 0.5),
    p99Ms: quantile(latenciesMs, 0.99),
  };
}
