import type { Mode, ShadowKind } from '../../shared/config/switches.ts';
import type { AttemptSubject } from '../../shared/telemetry/call-events.ts';
import type { ExecutorDeps } from './executor-deps.ts';

/** Where a part of the reliability layer is in shadow mode: what it would have done. */
export function reportShadow(
  { onEvent }: Pick<ExecutorDeps, 'onEvent'>,
  mode: Mode,
  event: AttemptSubject,
  kind: ShadowKind,
  detail: string,
): void {
  if (mode === 'shadow') onEvent({ type: 'tool_call_shadow', ...event, kind, detail });
}
