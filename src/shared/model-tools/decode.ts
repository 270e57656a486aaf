/** Decodes a model's call into the call of an exported tool. */
import { PawlError } from '../errors/failure.ts';
import { nearest } from '../schema/schema-issues.ts';
import { withoutNulls } from '../schema/without-nulls.ts';
import { DEFAULT_NAMESPACE } from '../tools/tool.ts';
import { readExactJson } from '../util/json/exact-json.ts';
import { startOf } from '../util/text/text-cut.ts';
import type { ExportableTool, ToolExport } from './export-types.ts';
import { ownName, type ToolReference } from './names.ts';
import { underOwnNames } from './parameter-names.ts';

/** A model's call in the provider's terms. */
export type ProviderCall =
  | { readonly kind: 'function'; readonly name: string; readonly arguments: string | Readonly<Record<string, unknown>> }
  | { readonly kind: 'custom'; readonly name: string; readonly input: string }
  | { readonly kind: 'local-shell'; readonly action: Readonly<Record<string, unknown>> };

export interface DecodedCall extends ToolReference {
  readonly params: Readonly<Record<string, unknown>>;
}

/** A tool that is exported under its own name can also be called by its second name. */
function referenceOf({ names }: ToolExport, name: string): ToolReference | undefined {
  if (Object.hasOwn(names, name)) return names[name];
  const own = names[ownName(DEFAULT_NAMESPACE, name) ?? ''];
  return own?.namespace === DEFAULT_NAMESPACE ? own : undefined;
}

/**
 * The call that a model means. Throws `UNKNOWN_TOOL` for a name that was not exported, and `INVALID_PARAMS`, written for the model, for
 * arguments that are not a JSON object and for a call of another kind than the tool's.
 */
export function decodeCall(exported: ToolExport, tools: readonly ExportableTool[], call: ProviderCall): DecodedCall {
  const shell = tools.find(({ variant }) => variant?.type === 'local-shell');
  const reference = call.kind === 'local-shell' ? shell : referenceOf(exported, call.name);
  const tool = tools.find((each) => each.namespace === reference?.namespace && each.name === reference.name);
  if (tool === undefined) throw new PawlError('UNKNOWN_TOOL', unknownTool(exported, call));
  const target = { namespace: tool.namespace, name: tool.name };
  if (call.kind === 'local-shell') return { ...target, params: shellParams(tool, call.action) };
  if (call.kind === 'custom') {
    if (tool.variant?.type !== 'freeform') throw invalid(`${tool.name} takes JSON arguments, not free text`);
    return { ...target, params: { [tool.variant.parameter ?? 'input']: call.input } };
  }
  const given = argumentsIn(tool.name, call.arguments);
  if (typeof given !== 'object' || given === null || Array.isArray(given))
    throw invalid(`the arguments of ${tool.name} must be a JSON object; got ${startOf(JSON.stringify(given), 100)}`);
  const params = underOwnNames(tool.inputSchema, given as Readonly<Record<string, unknown>>);
  return { ...target, params: withoutNulls(tool.inputSchema, params) as Readonly<Record<string, unknown>> };
}

/**
 * Missing arguments count as none, and so do null and an empty text: libraries pass on what a model left out. Some servers write the
 * object as a text of JSON once more.
 */
function argumentsIn(name: string, sent: unknown): unknown {
  const given = typeof sent === 'string' ? parse(name, sent) : sent;
  return (typeof given === 'string' && given.trim().startsWith('{') ? parse(name, given) : given) ?? {};
}

/** `trim` also removes a byte order mark. Throws for a number that would become another one. */
function parse(name: string, sent: string): unknown {
  const text = sent.trim();
  if (text === '') return {};
  const read = readExactJson(text);
  if (read.kind === 'value') return read.value;
  throw invalid(`the arguments of ${name} ${read.problem.replace(/^is /, 'are ').replace(/^holds /, 'hold ')}`);
}

/** A local shell's action has its own names; only parameters that the tool declares are kept. */
function shellParams(
  tool: ExportableTool,
  action: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const declared = Object.keys((tool.inputSchema['properties'] ?? {}) as object);
  const synonyms: Readonly<Record<string, readonly string[]>> = {
    working_directory: ['workdir', 'cwd'],
    timeout_ms: ['timeoutMs'],
  };
  return Object.fromEntries(
    Object.entries(action).flatMap(([name, value]) => {
      const known = [name, ...(synonyms[name] ?? [])].find((each) => declared.includes(each));
      return known === undefined || value === null ? [] : [[known, value]];
    }),
  );
}

function invalid(message: string): PawlError {
  return new PawlError('INVALID_PARAMS', `${message[0]?.toUpperCase()}${message.slice(1)}.`, {
    issues: [{ path: '', message }],
  });
}

/** The message for the model's next attempt. */
function unknownTool({ names }: ToolExport, call: ProviderCall): string {
  const name = String('name' in call ? call.name : call.kind);
  if (Object.hasOwn(names, name)) return `The tool ${JSON.stringify(name)} is not offered any more.`;
  const near = nearest(name, Object.keys(names));
  const hint = near.length === 0 ? '' : ` Did you mean ${near.join(' or ')}?`;
  return `No tool ${JSON.stringify(name)} was exported.${hint}`;
}
