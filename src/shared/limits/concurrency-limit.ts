/** Limits that an operator sets for the whole fleet, kept by `store/limits` (docs/scaling.md). */
import { z } from 'zod';
import { MAX_CONCURRENCY, qualifiedName, type ToolReference } from '../tools/tool.ts';

/** Fleet-wide limits: how many calls run at a time, and how many start in any second. */
export const limitSettingsSchema = z
  .strictObject({
    concurrency: z.number().int().min(1).max(MAX_CONCURRENCY),
    perSecond: z.number().int().min(1).max(MAX_CONCURRENCY),
  })
  .partial();

type LimitSettings = z.output<typeof limitSettingsSchema>;

export interface NamedLimit extends LimitSettings {
  /** Calls under one name share the limit: of a tool, a tenant, a credential. */
  readonly name: string;
}

export function toolLimit(tool: ToolReference, limits: LimitSettings | undefined): NamedLimit[] {
  return limits === undefined ? [] : [{ name: `policy:${qualifiedName(tool)}`, ...limits }];
}
