/** Decodes a model's call into the call of an exported tool. */
import { PawlError } from '../errors/failure.ts';
import { checkObject, invalidArgument } from '../schema/known-members.ts';
import { withoutNulls } from '../schema/without-nulls.ts';
import { DEFAULT_NAMESPACE, type ToolReference } from '../tools/tool.ts';
import { readExactJson } from '../util/json/exact-json.ts';
import { isObject } from '../util/json/json-types.ts';
import { capitalized, didYouMean } from '../util/text/nearest.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import type { ExportableTool, ToolExport } from './export-types.ts';
import { primaryName } from './names.ts';
import { toOwnNames } from './parameter-names.ts';

/** A model's call in the provider's terms. */
export type ProviderCall =
  | { readonly kind: 'function'; readonly name: string; readonly arguments: string | Readonly<Record<string, unknown>> }
  | { readonly kind: 'custom'; readonly name: string; readonly input: string }
  | { readonly kind: 'local-shell'; readonly action: Readonly<Record<string, unknown>> };

export interface DecodedCall extends ToolReference {
  readonly params: Readonly<Record<string, unknown>>;
}

/** A tool that is exported under its own name can also be called by its second name. */
function resolveName({ names }: ToolExport, name: string): ToolReference | undefined {
  if (Object.hasOwn(names, name)) return names[name];
  const alias = names[primaryName(DEFAULT_NAMESPACE, name) ?? ''];
  return alias?.namespace === DEFAULT_NAMESPACE ? alias : undefined;
}

const KINDS: readonly string[] = ['function', 'custom', 'local-shell'] satisfies ProviderCall['kind'][];

/**
 * Programs without types may pass a provider's own block, whose arguments have another name and would be lost. Model servers may write
 * any JSON for a name.
 */
function checkCall(call: ProviderCall): void {
  checkObject('call', call);
  const { kind, name } = call as { readonly kind?: unknown; readonly name?: unknown };
  if (!KINDS.includes(call.kind) && !('arguments' in call))
    throw invalidArgument('call.kind', `must be one of ${KINDS.join(', ')}; got ${quoteValue(kind)}`);
  if (kind !== 'local-shell' && typeof name !== 'string')
    throw invalidArgument('call.name', `must be the name of a tool; got ${quoteValue(name)}`);
}

/**
 * The call that a model made. Throws `UNKNOWN_TOOL` for a name that was not exported, and `INVALID_PARAMS`, written for the model, for
 * arguments that are not a JSON object and for a call of another kind than the tool's. Throws `CONTRACT_INVALID` for what is no call.
 */
export function decodeCall(exported: ToolExport, tools: readonly ExportableTool[], call: ProviderCall): DecodedCall {
  checkCall(call);
  const shell = tools.find(({ variant }) => variant?.type === 'local-shell');
  const reference = call.kind === 'local-shell' ? shell : resolveName(exported, call.name);
  const tool = tools.find(
    (candidate) => candidate.namespace === reference?.namespace && candidate.name === reference.name,
  );
  if (tool === undefined) throw new PawlError('UNKNOWN_TOOL', unknownTool(exported, call));
  const target = { namespace: tool.namespace, name: tool.name };
  if (call.kind === 'local-shell') {
    if (!isObject(call.action))
      throw invalid(`the action of ${tool.name} must be an object; got ${quoteValue(call.action)}`);
    return { ...target, params: shellParams(tool, call.action) };
  }
  if (call.kind === 'custom') {
    if (tool.variant?.type !== 'freeform') throw invalid(`${tool.name} takes JSON arguments, not free text`);
    return { ...target, params: { [tool.variant.parameter ?? 'input']: call.input } };
  }
  const input = parseArguments(tool.name, call.arguments);
  if (!isObject(input)) throw invalid(`the arguments of ${tool.name} must be a JSON object; got ${quoteValue(input)}`);
  const params = toOwnNames(tool.inputSchema, input);
  return { ...target, params: withoutNulls(tool.inputSchema, params) as Readonly<Record<string, unknown>> };
}

/**
 * Missing arguments, null and an empty text count as an empty object, because libraries pass them on when a model sends none. Some servers
 * encode any of these as JSON twice.
 */
function parseArguments(name: string, raw: unknown): unknown {
  const input = typeof raw === 'string' ? parse(name, raw) : raw;
  return (typeof input === 'string' && /^(?:\{.*|null)?$/s.test(input.trim()) ? parse(name, input) : input) ?? {};
}

/** `trim` also removes a byte order mark. Throws for a number that JavaScript cannot represent exactly. */
function parse(name: string, raw: string): unknown {
  const text = raw.trim();
  if (text === '') return {};
  const parsed = readExactJson(text);
  if (parsed.kind === 'value') return parsed.value;
  throw invalid(`the arguments of ${name} ${parsed.problem.replace(/^is /, 'are ').replace(/^holds /, 'hold ')}`);
}

/** A local shell's action has its own names; only parameters that the tool declares are kept. */
function shellParams(
  tool: ExportableTool,
  action: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const declared = Object.keys(tool.inputSchema['properties'] ?? {});
  const synonyms: Readonly<Record<string, readonly string[]>> = {
    working_directory: ['workdir', 'cwd'],
    timeout_ms: ['timeoutMs'],
  };
  return Object.fromEntries(
    Object.entries(action).flatMap(([name, value]) => {
      const parameter = [name, ...(synonyms[name] ?? [])].find((candidate) => declared.includes(candidate));
      return parameter === undefined || value === null ? [] : [[parameter, value]];
    }),
  );
}

function invalid(message: string): PawlError {
  return new PawlError('INVALID_PARAMS', `${capitalized(message)}.`, {
    issues: [{ path: '', message }],
  });
}

/** The message for the model's next attempt. */
function unknownTool({ names }: ToolExport, call: ProviderCall): string {
  const name = call.kind === 'local-shell' ? call.kind : call.name;
  if (Object.hasOwn(names, name)) return `The tool ${JSON.stringify(name)} is not offered any more.`;
  return `No tool ${JSON.stringify(name)} was exported. ${capitalized(didYouMean(name, Object.keys(names)))}`.trimEnd();
}
