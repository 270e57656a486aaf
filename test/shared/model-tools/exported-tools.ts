import { z } from 'zod';
import { parametersOf } from '../../../src/shared/model-tools/provider-refusals.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';

export const base = { version: '1.0.0', description: 'Does it.', tier: 'system', run: () => ({ output: 1 }) } as const;

export const rich = defineTool({
  ...base,
  name: 'book',
  title: 'Book a table',
  icon: { src: 'https://example.org/i.png' },
  examples: [{ params: { where: { city: 'Rome' }, either: { by: 'mail' } } }],
  annotations: { idempotentHint: true },
  input: z.object({
    where: z.object({ city: z.string().min(1), street: z.string().optional() }),
    seats: z.number().int().min(1).max(12).default(2),
    when: z.iso.datetime().optional().describe('When to come.'),
    kind: z.enum(['lunch', 'dinner']).optional(),
    notes: z.array(z.string()).max(3).optional(),
    nullable: z.string().nullable().optional(),
    either: z.union([
      z.object({ by: z.literal('mail') }),
      z.object({ by: z.literal('phone'), at: z.string().optional() }),
    ]),
  }),
  output: z.object({ id: z.string() }),
  run: () => ({ output: { id: 'x' } }),
});

export const tool = (name: string, inputSchema: JsonSchema) => defineUntypedTool({ ...base, name, inputSchema });

export const object = (properties: object, more: object = {}): JsonSchema => ({
  type: 'object',
  properties,
  required: [],
  additionalProperties: false,
  ...more,
});

export function schemaOf(exported: Readonly<Record<string, unknown>> | undefined): JsonSchema {
  return parametersOf(exported ?? {}) as JsonSchema;
}
