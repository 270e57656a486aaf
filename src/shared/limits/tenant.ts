/** An operator's settings for tenants: their share of a busy tier, and their limits (docs/scaling.md). */
import { z } from 'zod';
import { matches } from '../util/wildcard.ts';
import { limitSettingsSchema, type NamedLimit } from './concurrency-limit.ts';

/** The key is a tenant's ID, or a pattern with `*`. */
export const tenantSettingsSchema = z.record(
  z.string().min(1),
  z.strictObject({
    /** The number of waiting calls that start for each one of a tenant of weight 1. */
    weight: z.number().min(0.01).max(1_000).optional(),
    /** The limits; under a pattern, those of each tenant that matches. */
    limits: limitSettingsSchema.optional(),
  }),
);
export type TenantSettings = z.output<typeof tenantSettingsSchema>;

/** The weight under the tenant's own ID, else under the first pattern that matches; 1 without either. */
export function tenantWeight(settings: TenantSettings, tenantId: string | undefined): number {
  if (tenantId === undefined) return 1;
  const ownWeight = settings[tenantId]?.weight;
  if (ownWeight !== undefined) return ownWeight;
  for (const [pattern, { weight }] of Object.entries(settings))
    if (weight !== undefined && matches(pattern, tenantId)) return weight;
  return 1;
}

/** The limits of the tenant: those of its own entry, and those of each pattern that matches. */
export function tenantLimits(settings: TenantSettings, tenantId: string | undefined): NamedLimit[] {
  if (tenantId === undefined) return [];
  return Object.entries(settings).flatMap(([pattern, { limits }]) =>
    limits !== undefined && matches(pattern, tenantId) ? [{ name: `tenant:${pattern}:${tenantId}`, ...limits }] : [],
  );
}
