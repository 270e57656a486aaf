/** The executors of declared tools that are compiled into every worker. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Settings } from '../../shared/config/config.ts';
import type { Limits } from '../../shared/store/limits/concurrency-limits.ts';
import type { ToolMakers } from './declared-tools.ts';
import { httpConnector } from './http.ts';
import { ConnectorSecrets } from './secrets.ts';

interface ConnectorDeps {
  readonly settings: Settings;
  /** The source of secrets. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly limits: Pick<Limits, 'acquire' | 'release'>;
}

/** How long each further request extends a slot that its call holds. */
const SLOT_MS = 60_000;

export function builtInMakers({ settings, environment, limits }: ConnectorDeps): ToolMakers {
  return {
    http: httpConnector({
      secrets: new ConnectorSecrets(settings.connectors.secrets, environment),
      anotherRequest: async (limit, { callId, fence, signal }) => {
        // The call already holds a slot under its job's name, so only the rate limit applies.
        const { concurrency: _, ...rate } = limit;
        const start = `${callId} ${fence} ${crypto.randomUUID()}`;
        for (;;) {
          const answer = await limits.acquire(rate, { jobId: start }, SLOT_MS);
          if (answer.kind === 'granted') return () => limits.release(rate, { jobId: start }).catch(() => {});
          await sleep(answer.waitMs, undefined, { signal });
        }
      },
    }),
  };
}
