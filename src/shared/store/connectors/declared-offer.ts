/** Declared tools in the form of published ones: callers see no difference. */
import type { DeclaredToolRecord } from '../../connectors/declared-tool.ts';
import type { CatalogueContent, PublishedTool } from '../fleet/catalogue.ts';

export function declaredToolAsPublished(record: DeclaredToolRecord): PublishedTool {
  const { name, namespace, version, description, tier, effects, annotations, inputSchema, timeoutMs } = record;
  const { outputSchema, title, budget, circuit, definition, updatedAtMs } = record;
  return {
    name,
    namespace,
    version,
    description,
    tier,
    effects,
    // The answers of a service come from outside, whatever its declaration says.
    annotations: { openWorldHint: true, ...annotations } as PublishedTool['annotations'],
    inputSchema,
    ...(outputSchema === undefined ? {} : { outputSchema }),
    timeoutMs,
    circuit: circuit ?? {},
    ...(title === undefined ? {} : { title }),
    ...(budget === undefined ? {} : { budget: budget as NonNullable<PublishedTool['budget']> }),
    ...(record.trustClass === 'BestEffort' ? {} : { trustClass: record.trustClass }),
    definition,
    seenAtMs: updatedAtMs,
  };
}

/** How many living workers can run a declared tool. */
export function workersFor(
  { kind, tier }: Pick<DeclaredToolRecord, 'kind' | 'tier'>,
  workers: CatalogueContent['workers'],
): number {
  return workers.filter(({ kinds = [], tiers }) => kinds.includes(kind) && tiers.includes(tier)).length;
}
