import type { RecordAudit } from '../shared/audit/audit-event.ts';
import type { Hook } from '../shared/calls/define-hook.ts';
import type { Settings } from '../shared/config/config.ts';
import type { WorkerEvent } from '../shared/telemetry/call-events.ts';
import type { Logger } from '../shared/telemetry/log.ts';
import type { Tracing } from '../shared/telemetry/tracing.ts';
import type { MemoryStore } from '../shared/tools/capabilities.ts';
import type { AnyTool, Tier } from '../shared/tools/tool.ts';
import type { Random } from '../shared/util/time.ts';
import type { AttemptTraces } from './attempt/traces.ts';
import type { ToolMakers } from './connectors/declared-tools.ts';

export interface WorkerOptions {
  readonly settings: Settings;
  readonly tools: readonly AnyTool[];
  readonly tiers: readonly Tier[];
  /** Attempts at a time, for each tier. */
  readonly concurrency: number;
  readonly log: Logger;
  /** Receives decisions and refused attempts, beside the log. */
  readonly audit?: RecordAudit;
  /** The environment; programs that tools start may see a part of it. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Makers of the tools that the registry declares, by kind, instead of those that are compiled in. */
  readonly declared?: ToolMakers;
  readonly hooks?: readonly Hook[];
  /** Without one, no tool has memory. Its maker closes it. */
  readonly memory?: MemoryStore;
  readonly random?: Random;
  readonly onEvent?: (event: WorkerEvent) => void;
  readonly tracing?: Tracing<AttemptTraces>;
  /** An operator asks this worker to finish what it runs, and end. Default: `close()`. */
  readonly onDrainAsked?: () => void;
}

export function servedTools({ tools, tiers }: Pick<WorkerOptions, 'tools' | 'tiers'>): AnyTool[] {
  return tools.filter((tool) => tiers.includes(tool.tier));
}
