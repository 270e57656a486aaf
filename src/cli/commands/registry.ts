/** `pawl tools add|rm|enable|disable|import-openapi`: declaring tools while the system runs. */
import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { parse as parseYaml } from 'yaml';
import type { SecretSource } from '../../shared/connectors/connector.ts';
import type { DeclaredTool, RegistryRecord } from '../../shared/connectors/declared-tool.ts';
import { importOpenApi } from '../../shared/connectors/openapi-import.ts';
import { reasonOf } from '../../shared/errors/failure.ts';
import { isObject } from '../../shared/util/json/json-types.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { decodeDocument } from '../../shared/util/text/charset.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { type CliContext, operatorName, printOrSay, printResult, say, usageError } from '../context.ts';
import { signingCommand, withSigningPawl } from '../doctor/signing-keys.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { type Column, table } from '../print.ts';

const changeOptions = () => ({ by: operatorName() });

/** The changes that made the schemas of a tool usable, each with its place. */
export interface SchemaChanges {
  readonly tool: string;
  readonly changes: readonly string[];
}

/** Says what was changed, and returns the tools whose schemas were. */
export function sayChanged(context: CliContext, tools: readonly SchemaChanges[]): readonly SchemaChanges[] {
  const changed = tools.filter(({ changes }) => changes.length > 0);
  for (const { tool, changes } of changed) say(context, `changed: ${tool}: ${changes.join('; ')}`);
  return changed;
}

/** Declares the tools of a file: one declaration, a list of named ones, or the output of `import-openapi --dry-run --json`. */
export async function addTools(context: CliContext, file: string, options: { name?: string }): Promise<number> {
  const content = await readDocument(context, file);
  const declared = declarationsIn(content).map((entry, index) =>
    declarationOf(entry, `${file}: tool ${index + 1}`, options.name),
  );
  if (options.name !== undefined && declared.length !== 1) throw usageError('--name is for a file of one tool.');
  return withSigningPawl(context, async (pawl) => {
    const records: RegistryRecord[] = [];
    const changed: SchemaChanges[] = [];
    for (const { qualified, spec } of declared) {
      const { record, changes } = await pawl.registry.put(qualified, spec, changeOptions());
      records.push(record);
      changed.push({ tool: qualified, changes });
    }
    show(context, records, { changed: sayChanged(context, changed) });
  });
}

function declarationsIn(content: unknown): readonly unknown[] {
  const { tools } = (content ?? {}) as { readonly tools?: unknown };
  if (Array.isArray(tools)) return tools;
  return Array.isArray(content) ? content : [content];
}

/** Checks a declaration. All are checked before the first one is written, so that a file is declared wholly or not at all. */
function declarationOf(
  entry: unknown,
  location: string,
  name: string | undefined,
): { qualified: string; spec: DeclaredTool } {
  if (!isObject(entry))
    throw usageError(`${location} must be an object, a tool's declaration; got ${JSON.stringify(entry) ?? 'nothing'}.`);
  const { name: entryName, namespace, ...spec } = entry as Readonly<Record<string, unknown>>;
  for (const [field, value] of Object.entries({ name: entryName, namespace }))
    if (value !== undefined && typeof value !== 'string')
      throw usageError(`${location}: ${field} must be text; got ${JSON.stringify(value)}.`);
  const qualified =
    name ?? (namespace === undefined ? entryName : entryName === undefined ? undefined : `${namespace}.${entryName}`);
  if (qualified === undefined) throw usageError(`${location} has no name; add "name", or give --name.`);
  return { qualified: qualified as string, spec: spec as DeclaredTool };
}

export const removeTool = signingCommand(async (context, pawl, name: string) => {
  await pawl.registry.remove(name, changeOptions());
  printOrSay(context, { removed: name }, `${name} was removed`);
});

export const switchTool = signingCommand(async (context, pawl, enabled: boolean, name: string) => {
  const record = await pawl.registry.patch(name, { enabled }, changeOptions());
  printOrSay(context, record, `${name} is ${enabled ? 'enabled' : 'disabled'} for the whole fleet`);
});

interface ImportOpenApiOptions {
  readonly namespace?: string;
  readonly server?: string;
  readonly tag?: readonly string[];
  readonly operation?: readonly string[];
  readonly readOnly?: boolean;
  readonly secret?: readonly string[];
  readonly concurrency?: number;
  readonly perSecond?: number;
  readonly dryRun?: boolean;
}

export async function importOpenApiFile(
  context: CliContext,
  file: string,
  options: ImportOpenApiOptions,
): Promise<number> {
  const { tag, operation, secret = [], dryRun, ...rest } = options;
  const imported = await importOpenApi(await readDocument(context, file), {
    ...rest,
    ...defined({ tags: tag, operations: operation }),
    secrets: Object.fromEntries(secret.map(parseSecret)),
  });
  for (const { operation: operationName, reason } of imported.skipped)
    say(context, `left out: ${operationName}: ${reason}`);
  const changed = sayChanged(
    context,
    imported.tools.map(({ name, changes }) => ({ tool: name, changes })),
  );
  if (imported.tools.length === 0) throw usageError(`${file}: no operation was selected that can be imported.`);
  saySecrets(
    context,
    imported.tools.map(({ spec }) => spec),
  );
  if (dryRun === true) {
    const tools = imported.tools.map(({ name, spec }) => ({ name, ...spec }));
    printResult(context, { tools, skipped: imported.skipped, changed }, table(tools, IMPORTED_COLUMNS));
    return EXIT_CODES.success.code;
  }
  return withSigningPawl(context, async (pawl) => {
    const records: RegistryRecord[] = [];
    for (const { name, spec } of imported.tools)
      records.push((await pawl.registry.put(name, spec, { ...changeOptions(), imported: true })).record);
    show(context, records, { skipped: imported.skipped, changed });
    say(context, `${plural(records.length, 'tool')} in the namespace ${imported.namespace}`);
  });
}

/** Says where the workers look for the secrets of tools: without them, each call fails with `CONFIGURATION`. */
function saySecrets(context: CliContext, specs: readonly DeclaredTool[]): void {
  const sources = specs.flatMap((spec) => (spec.kind === 'http' ? Object.values(spec.routing.secrets ?? {}) : []));
  const names = sources.map((source) => {
    if ('env' in source) return `the variable ${source.env}`;
    return 'file' in source ? `the file ${source.file}` : `the program ${source.exec.join(' ')}`;
  });
  if (names.length > 0) say(context, `workers read a secret from ${[...new Set(names)].join(', ')}`);
}

/** `SCHEME=env:NAME`, `SCHEME=file:/path` or `SCHEME=exec:/program`. */
function parseSecret(text: string): [string, SecretSource] {
  const [, scheme, kind, value] = /^([^=]+)=(env|file|exec):(.+)$/.exec(text) ?? [];
  if (scheme === undefined || value === undefined)
    throw usageError(
      `--secret must be SCHEME=env:NAME, SCHEME=file:/path or SCHEME=exec:/program; got ${JSON.stringify(text)}.`,
    );
  return [scheme, kind === 'env' ? { env: value } : kind === 'file' ? { file: value } : { exec: [value] }];
}

/** JSON or YAML, in the encoding that its bytes show: some shells write UTF-16. */
async function readDocument(context: CliContext, file: string): Promise<unknown> {
  let text: string;
  try {
    text = decodeDocument(await readFile(resolve(context.cwd, file)), '');
  } catch (error) {
    throw usageError(`${file} cannot be read: ${reasonOf(error)}`);
  }
  try {
    return /^\s*[{[]/.test(text) ? JSON.parse(text) : parseYaml(text, { merge: true, logLevel: 'error' });
  } catch (error) {
    const reason = (reasonOf(error).split('\n')[0] ?? '').replace(/; please use \S+ at/, ' at').replace(/:$/, '');
    throw usageError(`${file} cannot be read as JSON or YAML: ${reason}.`);
  }
}

const IMPORTED_COLUMNS: readonly Column<{ readonly name: string; readonly description: string }>[] = [
  { title: 'TOOL', text: ({ name }) => name },
  { title: 'DESCRIPTION', text: ({ description }) => startOf(description.split('\n')[0] ?? '', 80) },
];

const COLUMNS: readonly Column<RegistryRecord>[] = [
  { title: 'TOOL', text: ({ namespace, name }) => `${namespace}.${name}` },
  { title: 'KIND', text: ({ kind }) => kind },
  { title: 'TIER', text: (record) => ('tier' in record ? record.tier : '') },
  { title: 'REVISION', align: 'right', text: ({ revision }) => String(revision) },
];

function show(context: CliContext, records: readonly RegistryRecord[], more: object = {}): void {
  printResult(context, { tools: records, ...more }, table(records, COLUMNS));
}
