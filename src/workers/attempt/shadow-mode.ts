import type { Mode, ShadowKind } from '../../shared/config/switches.ts';
import type { AttemptSubject, WorkerEvent } from '../../shared/telemetry/call-events.ts';

/** Reports what a reliability feature would have done, if the feature is in shadow mode. */
export function reportShadow(
  onEvent: (event: WorkerEvent) => void,
  mode: Mode,
  event: AttemptSubject & { readonly kind: ShadowKind; readonly detail: string },
): void {
  if (mode === 'shadow') onEvent({ type: 'tool_call_shadow', ...event });
}
