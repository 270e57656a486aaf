/** What an operator says of tenants: how much of a busy tier is theirs, and how much they may run (docs/scaling.md). */
import { z } from 'zod';
import { matches } from '../util/wildcard.ts';
import { limitSettingsSchema, type NamedLimit } from './concurrency-limit.ts';

/** Under a tenant's ID, or a pattern with `*`. */
export const tenantSettingsSchema = z.record(
  z.string().min(1),
  z.strictObject({
    /** Turns that its waiting calls have while a tenant of weight 1 has one. */
    weight: z.number().min(0.01).max(1_000).optional(),
    /** Under a pattern, of each tenant that fits. */
    limits: limitSettingsSchema.optional(),
  }),
);
export type TenantSettings = z.output<typeof tenantSettingsSchema>;

/** The weight that stands under the tenant's own ID, or else under the first pattern that fits; 1 where none does. */
export function tenantWeight(settings: TenantSettings, tenantId: string | undefined): number {
  if (tenantId === undefined) return 1;
  const own = settings[tenantId]?.weight;
  if (own !== undefined) return own;
  for (const [pattern, { weight }] of Object.entries(settings))
    if (weight !== undefined && matches(pattern, tenantId)) return weight;
  return 1;
}

/** What the tenant's calls count against: its own entry, and each pattern that fits. */
export function tenantLimits(settings: TenantSettings, tenantId: string | undefined): NamedLimit[] {
  if (tenantId === undefined) return [];
  return Object.entries(settings).flatMap(([pattern, { limits }]) =>
    limits !== undefined && matches(pattern, tenantId) ? [{ name: `tenant:${pattern}:${tenantId}`, ...limits }] : [],
  );
}
