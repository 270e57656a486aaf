import type { ProducerEvent } from '../../shared/telemetry/call-events.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';

/** What operators and metrics hear of (R27). */
export type DispatchEvent = ProducerEvent<ResolvedTool>;
