/** Defines a tool, and checks the definition at once instead of at the first call. */
import type { z } from 'zod';
import { PawlError } from '../errors/failure.ts';
import { EFFECTS, type Effects } from '../retries/effects.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { parameterFault } from '../schema/known-members.ts';
import {
  compileSchema,
  inputJsonSchema,
  isMarkedValid,
  outputJsonSchema,
  parseWith,
  requireZod,
  type ZodSchema,
} from '../schema/schema.ts';
import { withoutReference } from '../schema/schema-references.ts';
import { sanitizeSchema, UNFOLLOWED } from '../schema/schema-sanitize.ts';
import { isLargeSchema } from '../schema/schema-weight.ts';
import { findUnserializable } from '../util/json/json-support.ts';
import { isObject } from '../util/json/json-types.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { MAX_WAIT_MS } from '../util/time.ts';
import { CAPABILITIES, capabilitiesOf, NEEDS } from './capabilities.ts';
import { conditionSchema, costFault } from './operation-cost.ts';
import {
  type AnyTool,
  DEFAULT_MAX_RESULT_BYTES,
  DEFAULT_NAMESPACE,
  DEFAULT_TIMEOUT_MS,
  TIERS,
  type Tier,
  TOOL_FORMS,
  type Tool,
  type ToolAnnotations,
  type ToolOptions,
  type ToolSpec,
  toolBrand,
} from './tool.ts';
import { optionsCheck } from './tool-options.ts';
import { DEFAULT_VOTERS, TRUST_CLASSES } from './trust-class.ts';

const ICON = /^(?:https:|data:image\/)/;

/** The effects of a tool that does not state them: the most careful reading of its tier and annotations. */
export function defaultEffects(tier: Tier, annotations: ToolAnnotations): Effects {
  if (tier === 'read-only') return 'none';
  return annotations.idempotentHint === true ? 'idempotent' : 'once';
}

const checkOptions = optionsCheck(['name', 'input', 'schema', 'variant']);

/**
 * Defines a tool; `run` is typed by the zod schema `input`, callers by the same schema's input side.
 * Throws `CONFIGURATION` naming the field when the definition is unusable, at definition time and not at the first call.
 */
export function defineTool<const Name extends string, Schema extends ZodSchema, Output>(
  spec: ToolSpec<Name, Schema, Output>,
): Tool<Name, z.input<Schema>, z.output<Schema>, Output> {
  checkOptions(spec);
  withToolName(spec.name, () => requireZod(spec.input, 'input'));
  return makeTool<Name, z.input<Schema>, z.output<Schema>, Output>(spec.name, spec, {
    inputSchema: spec.schema ?? withToolName(spec.name, () => inputJsonSchema(spec.input)),
    variant: spec.variant ?? { type: 'function' },
    parse: (params) => parseWith(spec.input, params),
  });
}

/**
 * Defines one of Pawl's own tools, whose definitions a test checks. Its schemas are computed at their first use: every program loads all
 * of these tools, and few programs use them.
 */
export function defineBaseTool<const Name extends string, Schema extends ZodSchema, Output>(
  spec: ToolSpec<Name, Schema, Output>,
): Tool<Name, z.input<Schema>, z.output<Schema>, Output> {
  const { input, output, schema, variant = { type: 'function' }, ...options } = spec;
  const tool = buildTool<Name, z.input<Schema>, z.output<Schema>, Output>(
    spec.name,
    options as ToolOptions<z.output<Schema>, Output>,
    { inputSchema: {}, variant, parse: (params) => parseWith(input, params) },
  );
  defineLazy(tool, 'inputSchema', () => {
    const source = schema ?? inputJsonSchema(input);
    return withoutReference(source, source);
  });
  if (output !== undefined) defineLazy(tool, 'outputSchema', () => outputJsonSchema(output));
  return tool;
}

function defineLazy(tool: object, name: string, make: () => unknown): void {
  const attributes = { enumerable: true, configurable: true };
  const get = () => {
    const value = make();
    Object.defineProperty(tool, name, { ...attributes, value });
    return value;
  };
  Object.defineProperty(tool, name, { ...attributes, get });
}

/** Makes a tool from its options and checks it. Every way to define a tool ends here. */
export function makeTool<Name extends string, Input, Params, Output>(
  name: Name,
  options: ToolOptions<Params, Output>,
  form: Pick<Tool<Name, Input, Params, Output>, 'inputSchema' | 'variant' | 'parse'>,
): Tool<Name, Input, Params, Output> {
  const tool = buildTool(name, options, form);
  checkDefinition(tool);
  return tool;
}

function buildTool<Name extends string, Input, Params, Output>(
  name: Name,
  options: ToolOptions<Params, Output>,
  form: Pick<Tool<Name, Input, Params, Output>, 'inputSchema' | 'variant' | 'parse'>,
): Tool<Name, Input, Params, Output> {
  const { version, description, tier, title, icon, maxOutputBytes, budget, output } = options;
  const { run, probe, compensate, normalise, ready, preview, isMutating, resource } = options;
  const { trustClass = 'BestEffort', voters } = options;
  const annotations = options.annotations ?? {};
  // Readers of the schema do not resolve a reference at its root.
  const ownSchema = withToolName(name, () => followReferences(form.inputSchema));
  const inputSchema = withoutReference(ownSchema, ownSchema);
  return {
    [toolBrand]: true,
    name,
    namespace: options.namespace ?? DEFAULT_NAMESPACE,
    version,
    description,
    examples: options.examples ?? [],
    tier,
    effects: options.effects ?? defaultEffects(tier, annotations),
    annotations,
    ...(output !== undefined && { outputSchema: withToolName(name, () => outputJsonSchema(output)) }),
    needs: capabilitiesOf(options.needs ?? [], tier !== 'read-only'),
    parallel: options.parallel ?? true,
    timeoutMs: options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
    maxResultBytes: options.maxResultBytes ?? DEFAULT_MAX_RESULT_BYTES,
    trustClass,
    retry: options.retry ?? {},
    circuit: options.circuit ?? {},
    ...form,
    inputSchema,
    run,
    ...defined({
      title,
      icon,
      maxOutputBytes,
      budget,
      voters,
      probe,
      compensate,
      normalise,
      ready,
      preview,
      isMutating,
      resource,
    }),
  };
}

/** A reference at a place other than the root or a member of `$defs`, or a name of such a place. */
const FOREIGN_REFERENCE = /"\$(?:id|anchor|dynamicRef|recursiveRef)":"|"\$ref":"(?!#"|#\/\$defs\/[^/"]+")/;

/**
 * The schema with all its references leading into `$defs`. Exports and checks follow no others, and a reference that they cannot follow
 * would leave a tool without parameters. Throws `CONFIGURATION` for a reference that leads nowhere.
 */
function followReferences(schema: JsonSchema): JsonSchema {
  if (!isObject(schema) || isMarkedValid(schema)) return schema;
  const found = findUnserializable(schema);
  if (found !== undefined)
    throw new PawlError(
      'CONFIGURATION',
      `the schema must be JSON; it has ${found.kind} in ${found.path.slice(1) || 'its root'}.`,
    );
  if (schema['$ref'] === undefined && !FOREIGN_REFERENCE.test(JSON.stringify(schema))) return schema;
  const { schema: repaired, changes } = sanitizeSchema(schema);
  const dangling = changes.find((change) => change.endsWith(UNFOLLOWED));
  if (dangling !== undefined) throw new PawlError('CONFIGURATION', `the schema's ${dangling}.`);
  return repaired;
}

/** Adds the tool's name to an error of its schema, because a file may define many tools. */
export function withToolName<T>(name: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    throw new PawlError(error.code, `Tool ${quoteValue(name)}: ${error.message}`, { cause: error });
  }
}

/** Throws `CONFIGURATION` naming every invalid field. */
export function checkDefinition(tool: AnyTool): void {
  const faults: string[] = [];
  const fail: FieldFault = (field, expected, actual) =>
    void faults.push(`${field} must be ${expected}; got ${quoteValue(actual)}.`);
  checkFields(tool, fail);
  // These compile the schema.
  if (faults.length === 0) {
    checkCosts(tool, fail);
    checkExamples(tool, fail);
  }
  if (faults.length > 0) throw new PawlError('CONFIGURATION', `Tool ${quoteValue(tool.name)}: ${faults.join(' ')}`);
}

/** Takes a field that is not as expected. */
type FieldFault = (field: string, expected: string, actual: unknown) => void;

function checkFields(tool: AnyTool, fail: FieldFault): void {
  // Callers without types may leave out members that every list and export of tools needs.
  const checkForm = (field: keyof typeof TOOL_FORMS, words: string = TOOL_FORMS[field].words) => {
    if (typeof tool[field] !== 'string' || !TOOL_FORMS[field].form.test(tool[field])) fail(field, words, tool[field]);
  };
  checkForm('name');
  checkForm('namespace');
  if (typeof tool.description !== 'string') fail('description', 'a text', tool.description);
  checkForm('version', `${TOOL_FORMS.version.words} such as 1.0.0`);
  if (!TIERS.includes(tool.tier)) fail('tier', `one of ${TIERS.join(', ')}`, tool.tier);
  if (!EFFECTS.includes(tool.effects)) fail('effects', `one of ${EFFECTS.join(', ')}`, tool.effects);
  if (tool.effects === 'probe' && tool.probe === undefined)
    fail('probe', "a function, because effects is 'probe'", undefined);
  if (tool.tier === 'read-only' && tool.effects !== 'none')
    fail('effects', "'none' in the read-only tier", tool.effects);
  if (!TRUST_CLASSES.includes(tool.trustClass))
    fail('trustClass', `one of ${TRUST_CLASSES.join(', ')}`, tool.trustClass);
  if (tool.trustClass === 'ConsensusRequired' && tool.tier !== 'read-only')
    fail('trustClass', "'BestEffort' outside of the read-only tier", tool.trustClass);
  const { voters = DEFAULT_VOTERS } = tool;
  if (!(Number.isInteger(voters) && voters >= 3 && voters % 2 === 1)) fail('voters', 'an odd number from 3 on', voters);
  for (const need of tool.needs) if (!CAPABILITIES.includes(need)) fail('needs', `some of ${NEEDS.join(', ')}`, need);
  if (tool.icon !== undefined && !ICON.test(tool.icon.src))
    fail('icon.src', 'an https: address or an image as data: address', tool.icon.src);
  if (typeof tool.run !== 'function') fail('run', 'a function', typeof tool.run);
  if (!(Number.isSafeInteger(tool.timeoutMs) && tool.timeoutMs >= 1 && tool.timeoutMs <= MAX_WAIT_MS))
    fail('timeoutMs', `whole milliseconds from 1 to ${MAX_WAIT_MS} (a week)`, tool.timeoutMs);
  const { type = 'object' } = tool.inputSchema as { readonly type?: unknown };
  if (![type].flat().includes('object')) fail('input', 'a schema of an object, such as z.object({ … })', { type });
  const command = (tool.inputSchema['properties'] as { readonly command?: unknown } | undefined)?.command;
  if (tool.variant.type === 'local-shell' && command === undefined)
    fail('input', 'a schema with the parameter command, because variant is local-shell', tool.inputSchema);
  if (tool.variant.type === 'freeform') checkFreeform(tool, tool.variant, fail);
  const { targetParameter } = tool.circuit;
  const unnamed = targetParameter === undefined ? undefined : parameterFault(targetParameter, tool.inputSchema);
  if (unnamed !== undefined) fail('circuit.targetParameter', unnamed, targetParameter);
}

function checkFreeform(
  { inputSchema }: AnyTool,
  { parameter = 'input' }: { readonly parameter?: string },
  fail: FieldFault,
): void {
  const { [parameter]: text } = (inputSchema['properties'] ?? {}) as Readonly<
    Record<string, { readonly type?: unknown }>
  >;
  const otherRequired = ((inputSchema['required'] ?? []) as readonly string[]).filter((name) => name !== parameter);
  if (text?.type !== 'string' || otherRequired.length > 0)
    fail(
      'input',
      `a schema with the text ${parameter} and nothing else that is required, because variant is freeform`,
      inputSchema,
    );
}

function checkExamples(tool: AnyTool, fail: FieldFault): void {
  if (tool.examples.length === 0) return;
  const validate = withToolName(tool.name, () => compileSchema(tool.inputSchema));
  for (const [index, { params }] of tool.examples.entries()) {
    const [issue] = validate(params);
    if (issue !== undefined) fail(`examples[${index}].params.${issue.path}`, 'as the schema says', issue.message);
  }
}

function checkCosts({ budget, inputSchema, name }: AnyTool, fail: FieldFault): void {
  const { costs = [] } = budget ?? {};
  const schema = costs.length === 0 ? undefined : conditionSchema(inputSchema);
  if (schema === undefined) return;
  // Compiling a large schema would hold the event loop of each worker. Declared ones were checked in a thread.
  const validate = isLargeSchema(schema) ? () => [] : withToolName(name, () => compileSchema(schema));
  const issues = costs.map(({ when }) => validate(when));
  const fault = costFault(costs, inputSchema, issues);
  if (fault !== undefined) fail(fault.path, fault.expected, fault.actual);
}
