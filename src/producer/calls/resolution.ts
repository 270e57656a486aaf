/** The outcome that an operator gives a call whose outcome is unknown. */
import { failedLifetime } from '../../shared/calls/call-state.ts';
import { type Outcome, resultError } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { ttlsOf } from '../../shared/config/tool-settings.ts';
import { failureOf } from '../../shared/errors/failure.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';

export type Resolution =
  | { readonly as: 'succeeded'; readonly output?: unknown }
  | { readonly as: 'failed' }
  | { readonly as: 'retry' };

export function resolveAs(
  { ledger, settings }: { readonly ledger: Ledger; readonly settings: Pick<Settings, 'ttl' | 'tools'> },
  record: CallRecord,
  resolution: Extract<Resolution, { readonly as: 'succeeded' | 'failed' }>,
): Promise<'resolved' | 'refused' | 'gone'> {
  const { toolNamespace, toolName } = record.request.envelope;
  const ttls = ttlsOf(settings, { namespace: toolNamespace, name: toolName });
  const base = {
    toolName,
    durationMs: record.readAtMs - record.createdAtMs,
    attempts: record.attempts.length,
  };
  if (resolution.as === 'succeeded') {
    const outcome: Outcome = {
      ...base,
      status: 'success',
      output: { content: resolution.output ?? null, metadata: { resolved: true } },
    };
    return ledger.resolve(record.callId, 'done', outcome, ttls.doneMs);
  }
  const error = resultError(failureOf('TOOL_FAILED', 'Resolved by an operator: the effect did not happen.'), 'error');
  const { ttlMs, freeAfterMs } = failedLifetime(ttls);
  return ledger.resolve(record.callId, 'failed', { ...base, status: 'error', error }, ttlMs, freeAfterMs);
}
