/** The executors of declared tools that are compiled into every worker (I8). */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Settings } from '../../shared/config/config.ts';
import type { Limits } from '../../shared/store/limits/concurrency-limits.ts';
import type { ToolMakers } from './declared-tools.ts';
import { httpConnector } from './http.ts';
import { ConnectorSecrets } from './secrets.ts';

export interface ConnectorDeps {
  readonly settings: Settings;
  /** Where secrets may come from. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly limits: Pick<Limits, 'take' | 'release'>;
}

/** A slot that a call holds already is held this long from each of its further requests on. */
const SLOT_MS = 60_000;

export function compiledIn({ settings, environment, limits }: ConnectorDeps): ToolMakers {
  return {
    http: httpConnector({
      secrets: new ConnectorSecrets(settings.connectors.secrets, environment),
      anotherRequest: async (limit, { callId, fence, signal }) => {
        // It holds a slot already, under its job's name: only the rate is asked for.
        const { concurrency: _, ...rate } = limit;
        const start = `${callId} ${fence} ${crypto.randomUUID()}`;
        for (;;) {
          const answer = await limits.take(rate, { jobId: start }, SLOT_MS);
          if (answer.kind === 'granted') return () => limits.release(rate, { jobId: start }).catch(() => {});
          await sleep(answer.waitMs, undefined, { signal });
        }
      },
    }),
  };
}
