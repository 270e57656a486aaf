import type { Settings } from '../../shared/config/config.ts';
import { secretsOf } from '../../shared/errors/redaction.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { ProducerMetrics } from '../operations/metrics.ts';
import { CompletionService, type CompletionServiceDeps } from './completion-service.ts';

/** The parts of a producer that complete calls. */
interface CompletionParts {
  readonly backend: Pick<Backend, 'completions' | 'ledger' | 'audit'>;
  readonly settings: Settings;
  readonly metrics: Pick<ProducerMetrics, 'completion'>;
  readonly sessionCache: Pick<CompletionServiceDeps, 'taint'>;
}

export function composeCompletions({ backend, settings, metrics, sessionCache }: CompletionParts): CompletionService {
  return new CompletionService({
    records: backend.completions,
    settings,
    secrets: secretsOf(settings, {}),
    read: (callId) => backend.ledger.read(callId),
    taint: (sessionKey, source) => sessionCache.taint(sessionKey, source),
    audit: backend.audit,
    onCompletion: (result) => metrics.completion(result),
  });
}
