/** Further ways to define a tool, beside `defineTool`: from one function, from plain JSON Schema, and for free text. */

import type { z } from 'zod';
import { PawlError } from '../errors/failure.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { inputJsonSchema, parseWith, type ZodSchema } from '../schema/schema.ts';
import { isObject } from '../util/json/json-types.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { makeTool, withToolName } from './define-tool.ts';
import type { Tool, ToolOptions } from './tool.ts';
import type { ToolContext } from './tool-context.ts';
import { optionsCheck } from './tool-options.ts';
import type { FreeformFormat, VariantWithParameters } from './tool-variant.ts';

type Parameters = Readonly<Record<string, unknown>>;

const checkFunctionOptions = optionsCheck(['name']);
const checkUntypedOptions = optionsCheck(['name', 'inputSchema', 'variant']);
const checkFreeformOptions = optionsCheck(['name', 'format']);

export type FunctionToolOptions<Params, Output> = Omit<
  Partial<ToolOptions<Params, Output>>,
  'description' | 'run' | 'output'
>;

/**
 * A tool from one function, which returns its output alone. Its version is 1.0.0. Unless `tier` says otherwise, its tier is `read-only`
 * with `annotations.readOnlyHint` and `system` without. Throws `CONFIGURATION` as `defineTool` does.
 */
export function functionTool<const Name extends string, Schema extends ZodSchema, Output>(
  name: Name,
  description: string,
  input: Schema,
  run: (params: z.output<Schema>, ctx: ToolContext) => Promise<Output> | Output,
  options: FunctionToolOptions<z.output<Schema>, Output> = {},
): Tool<Name, z.input<Schema>, z.output<Schema>, Output> {
  checkFunctionOptions({ name, ...options });
  const tier = options.annotations?.readOnlyHint === true ? 'read-only' : 'system';
  return makeTool<Name, z.input<Schema>, z.output<Schema>, Output>(
    name,
    {
      version: '1.0.0',
      tier,
      ...defined(options),
      description,
      run: async (params, ctx) => ({ output: await run(params, ctx) }),
    },
    {
      inputSchema: withToolName(name, () => inputJsonSchema(input)),
      variant: { type: 'function' },
      parse: (params) => parseWith(input, params),
    },
  );
}

export interface UntypedToolSpec<Name extends string, Output> extends ToolOptions<Parameters, Output> {
  readonly name: Name;
  /** JSON Schema 2020-12 of an object. Foreign schemas go through `sanitizeSchema` first. */
  readonly inputSchema: JsonSchema;
  readonly variant?: VariantWithParameters;
}

/** A tool with plain JSON Schema. Its parameters are those that the schema accepts, without defaults. */
export function defineUntypedTool<const Name extends string, Output>(
  spec: UntypedToolSpec<Name, Output>,
): Tool<Name, Parameters, Parameters, Output> {
  checkUntypedOptions(spec);
  return makeTool<Name, Parameters, Parameters, Output>(spec.name, spec, {
    inputSchema: spec.inputSchema,
    variant: spec.variant ?? { type: 'function' },
    parse: (params) => params as Parameters,
  });
}

export interface FreeformToolSpec<Name extends string, Output>
  extends Omit<ToolOptions<{ readonly input: string }, Output>, 'run'> {
  readonly name: Name;
  readonly format: FreeformFormat;
  run: (text: string, ctx: ToolContext) => ReturnType<ToolOptions<{ readonly input: string }, Output>['run']>;
}

/** A tool that takes one text, such as a patch. Its calls carry the text as the parameter `input`. */
export function defineFreeformTool<const Name extends string, Output>(
  given: FreeformToolSpec<Name, Output>,
): Tool<Name, { readonly input: string }, { readonly input: string }, Output> {
  checkFreeformOptions(given);
  const { format, ...spec } = given;
  if (!isObject(format)) throw new PawlError('CONFIGURATION', `Tool ${quoteValue(spec.name)}: it needs a format.`);
  const description =
    format.type === 'text' ? 'The whole input.' : `The whole input, in the format of the tool:\n${format.definition}`;
  return makeTool<Name, { readonly input: string }, { readonly input: string }, Output>(
    spec.name,
    { ...spec, run: ({ input }, ctx) => spec.run(input, ctx) },
    {
      inputSchema: {
        type: 'object',
        properties: { input: { type: 'string', description } },
        required: ['input'],
        additionalProperties: false,
      },
      variant: { type: 'freeform', format },
      parse: (params) => params as { readonly input: string },
    },
  );
}
