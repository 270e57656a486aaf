/** The schemas of published tools and workers. A stored value of another form was not written by a worker, and must not break the others. */
import { z } from 'zod';
import { EFFECTS } from '../../retries/effects.ts';
import { hasKeywordValues } from '../../schema/schema-keywords.ts';
import { sizeOfValue } from '../../schema/value-size.ts';
import { TIERS } from '../../tools/tool.ts';
import { parseJson } from '../../util/json/json-types.ts';

const text = z.string();
const count = z.number().int().min(0);
const object = z.record(z.string(), z.unknown());
/** Deeper schemas, which no worker publishes, would break the recursive functions that read them. */
const MAX_DEPTH = 200;
/** Exports read schemas without looking: one of another form would make that of all tools fail. */
const schema = object.refine(
  (value) => typeof sizeOfValue(value, { maxDepth: MAX_DEPTH, texts: false }) !== 'string' && hasKeywordValues(value),
);

const publishedToolSchema = z.looseObject({
  name: text.min(1),
  namespace: text.min(1),
  version: text.regex(/^\d+\.\d+\.\d+/),
  description: text,
  tier: z.enum(TIERS),
  effects: z.enum(EFFECTS),
  annotations: object,
  inputSchema: schema,
  outputSchema: schema.optional(),
  timeoutMs: z.number().min(0),
  circuit: object,
  seenAtMs: z.number().min(0),
  title: text.optional(),
  icon: z.looseObject({ src: text }).optional(),
  examples: z.array(z.looseObject({ params: object })).optional(),
  variant: z.looseObject({ type: text }).optional(),
  parallel: z.boolean().optional(),
  budget: object.optional(),
  trustClass: text.optional(),
  previews: z.boolean().optional(),
  compensates: z.boolean().optional(),
});

export const workerRecordSchema = z.looseObject({
  id: text,
  host: text,
  pid: count,
  tiers: z.array(z.enum(TIERS)),
  concurrency: count,
  running: count,
  tools: z.array(text),
  definitions: z.array(text).optional(),
  kinds: z.array(text).optional(),
  unconfined: z.array(text).optional(),
  draining: z.boolean().optional(),
  startedAtMs: z.number(),
  pawlVersion: text,
  signing: z.array(text).optional(),
  tierSigning: z.partialRecord(z.enum(TIERS), z.array(text)).optional(),
  clockAheadMs: z.number().optional(),
});

/** Undefined for a text that is no published tool. */
export function parsePublishedTool(json: string): z.output<typeof publishedToolSchema> | undefined {
  return publishedToolSchema.safeParse(parseJson(json)).data;
}

/** Undefined for a text that is no worker's record. */
export function parseWorkerRecord(json: string): z.output<typeof workerRecordSchema> | undefined {
  return workerRecordSchema.safeParse(parseJson(json)).data;
}
