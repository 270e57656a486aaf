/** The observers of a producer's events: traces, metrics, the audit trail, and the program's own listener. */
import type { Backend } from '../shared/store/backend.ts';
import { notify } from '../shared/telemetry/listeners.ts';
import type { CallAudit } from './calls/audit.ts';
import type { DispatchEvent } from './calls/submission.ts';
import type { CallTraces } from './calls/traces.ts';
import type { ProducerMetrics } from './operations/metrics.ts';
import type { ProducerSessions } from './sessions/session-cache.ts';
import type { ToolCatalogue } from './tools/tool-catalogue.ts';

interface EventObserverDeps {
  readonly switches: Pick<Backend['switches'], 'countShadow'>;
  readonly catalogue: Pick<ToolCatalogue, 'peek'>;
  readonly sessions: Pick<ProducerSessions, 'forget'>;
  readonly metrics: ProducerMetrics;
  readonly audit: Pick<CallAudit, 'observe'>;
  readonly traces: CallTraces | undefined;
  readonly onEvent: ((event: DispatchEvent) => void) | undefined;
  /** The program's listener has thrown, or its promise was rejected. */
  readonly onListenerFailed: (error: unknown) => void;
}

export function eventObserver(deps: EventObserverDeps): (event: DispatchEvent) => void {
  const { switches, catalogue, sessions, metrics, audit, traces, onEvent, onListenerFailed } = deps;
  return (event) => {
    traces?.observe(event);
    if (event.type === 'refused' && event.envelope !== undefined && event.published === undefined) {
      const { toolNamespace, toolName } = event.envelope;
      const tool = catalogue.peek(toolNamespace, toolName);
      if (tool !== undefined) metrics.tools.add(tool);
    }
    // The worker did not find a session that is cached here: Redis has lost it, so the next call opens it again.
    if (event.type === 'ended' && event.result.error?.code === 'UNKNOWN_SESSION')
      sessions.forget(event.envelope.target.sessionKey);
    metrics.observe(event);
    audit.observe(event);
    notify(onEvent, event, onListenerFailed);
    if (event.type !== 'shadow') return;
    const { toolNamespace, toolName } = event.envelope;
    switches.countShadow(event.kind, `${toolNamespace}.${toolName}`).catch(() => {});
  };
}
