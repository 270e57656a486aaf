/** How fast a producer refuses calls of a tool whose circuit is open: one at a time, and many at once. */
import { Fleet } from '../fleet.ts';
import type { RefusalReport } from '../protocol.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';

export interface RefusalsResult extends RefusalReport {
  /** Commands that Redis ran meanwhile, of heartbeats and all, for 1,000 refusals. */
  readonly commandsPerThousand: number;
}

const CALLS = 20_000;
const BULK_MS = 5_000;

export async function measureRefusals(quick: boolean): Promise<RefusalsResult> {
  return withStore(startServer(), (server) =>
    Fleet.with({ sides: new Map([['pawl', server]]), producers: 1 }, async (fleet) => {
      const producer = fleet.producer('pawl');
      await producer.ask('open-circuit', {});
      const commandsBefore = await server.commands();
      const report = await producer.ask('refusals', { calls: CALLS, bulkMs: quick ? BULK_MS / 5 : BULK_MS });
      const commands = (await server.commands()) - commandsBefore;
      return { ...report, commandsPerThousand: (1_000 * commands) / (report.calls + report.bulkCalls) };
    }),
  );
}
