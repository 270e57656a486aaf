/** Declared tools in the form of published ones, so that callers see no difference. */
import type { DeclaredToolRecord } from '../../connectors/declared-tool.ts';
import { defined } from '../../util/json/omit-undefined.ts';
import type { CatalogueContent, PublishedTool } from '../fleet/catalogue.ts';

export function declaredToolAsPublished(record: DeclaredToolRecord): PublishedTool {
  const { name, namespace, version, description, tier, effects, annotations, inputSchema, timeoutMs } = record;
  const { outputSchema, title, budget, circuit, definition, updatedAtMs } = record;
  return {
    ...{ name, namespace, version, description, tier, effects, inputSchema, timeoutMs },
    // The answers of a service come from outside, whatever its declaration says.
    annotations: { openWorldHint: true, ...annotations } as PublishedTool['annotations'],
    ...defined({ outputSchema, title, budget: budget as PublishedTool['budget'] }),
    circuit: circuit ?? {},
    ...(record.trustClass === 'BestEffort' ? {} : { trustClass: record.trustClass }),
    definition,
    seenAtMs: updatedAtMs,
  };
}

/** The number of living workers that can run a declared tool. */
export function workersFor(
  { kind, tier }: Pick<DeclaredToolRecord, 'kind' | 'tier'>,
  workers: CatalogueContent['workers'],
): number {
  return workers.filter(({ kinds = [], tiers }) => kinds.includes(kind) && tiers.includes(tier)).length;
}
