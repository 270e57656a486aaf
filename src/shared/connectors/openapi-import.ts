/**
 * OpenAPI documents (3.0 to 3.2) as connectors: one declared tool for each operation. Pure functions; references within the document are
 * followed, references out of it are not.
 */
import { PawlError } from '../errors/failure.ts';
import { nearest } from '../schema/schema-issues.ts';
import { type CheckedDeclaredTool, type DeclaredTool, declaredToolRecord, parseToolName } from './declared-tool.ts';
import { type OperationOptions, operationTool, schemesOf } from './openapi-operation.ts';
import { invalidDocument, type Json, NotImportable, objectOf, referencesOf, resolved } from './openapi-schema.ts';

export interface OpenApiImport extends OperationOptions {
  /** Default: from the document's title. */
  readonly namespace?: string;
  /** Only operations with one of these tags. */
  readonly tags?: readonly string[];
  /** Only operations with these IDs, or `GET /path`. */
  readonly operations?: readonly string[];
  /** Only operations that read. */
  readonly readOnly?: boolean;
}

export interface ImportedOpenApi {
  readonly namespace: string;
  readonly tools: readonly {
    readonly name: string;
    /** With the schema as it will be declared. */
    readonly spec: DeclaredTool;
    /** The changes that made its schema usable, each with its place. */
    readonly changes: readonly string[];
  }[];
  readonly skipped: readonly { readonly operation: string; readonly reason: string }[];
}

const METHODS = ['get', 'head', 'post', 'put', 'patch', 'delete'] as const;
/** Further methods that a document may describe. */
const OTHER_METHODS = ['options', 'trace', 'query'] as const;
const READING = ['get', 'head'];

/**
 * Throws `CONTRACT_INVALID` for a document that is not OpenAPI 3 or names no server, and for options that name a security scheme, tag or
 * operation that it does not have.
 */
export async function importOpenApi(given: unknown, options: OpenApiImport = {}): Promise<ImportedOpenApi> {
  const document = objectOf(given);
  const version = document?.['openapi'];
  if (document === undefined || typeof version !== 'string' || !/^3\.[012]\./.test(version))
    throw invalidDocument(`is no OpenAPI document of version 3.0, 3.1 or 3.2 (${foundVersion(document)})`);
  checkSchemes(document, Object.keys(options.secrets ?? {}));
  const info = objectOf(document['info']) ?? {};
  const namespace = options.namespace ?? namespaceOf(info['title']);
  const names = new Set<string>();
  const tools: { name: string; spec: DeclaredTool; changes: readonly string[] }[] = [];
  const skipped: { operation: string; reason: string }[] = [];
  const skip = (operation: string, error: unknown) => {
    if (!(error instanceof NotImportable)) throw error;
    skipped.push({ operation, reason: error.message });
  };
  const references = referencesOf(document);
  const known = { tag: new Set<string>(), operation: new Set<string>() };
  for (const [path, pathItem] of Object.entries(objectOf(document['paths']) ?? {})) {
    let item: Json | undefined;
    try {
      item = resolved(document, pathItem);
    } catch (error) {
      skip(path, error);
    }
    for (const method of OTHER_METHODS)
      if (objectOf(item?.[method]) !== undefined && options.operations === undefined)
        skipped.push({ operation: `${method.toUpperCase()} ${path}`, reason: 'its method cannot be called' });
    for (const method of METHODS) {
      const operation = objectOf(item?.[method]);
      if (item === undefined || operation === undefined) continue;
      const tags = tagsOf(operation);
      const called = namesOf(operation, method, path);
      for (const tag of tags) known.tag.add(tag);
      for (const name of called) known.operation.add(name);
      if (!isSelected(method, tags, called, options)) continue;
      try {
        const spec = operationTool({ document, references, item, operation, method, path, namespace, info, options });
        const name = `${namespace}.${uniqueName(operation['operationId'] ?? `${method}_${path}`, names)}`;
        const { record, changes } = await declarable(spec, parseToolName(name));
        tools.push({ name, spec: { ...spec, inputSchema: record.inputSchema }, changes });
      } catch (error) {
        skip(called[0], error);
      }
    }
  }
  checkNamed('tag', options.tags, known.tag);
  checkNamed('operation', options.operations, known.operation);
  return { namespace, tools, skipped };
}

function namesOf({ operationId }: Json, method: string, path: string): readonly [string, ...string[]] {
  const place = `${method.toUpperCase()} ${path}`;
  return typeof operationId === 'string' ? [operationId, place] : [place];
}

function tagsOf({ tags }: Json): string[] {
  return Array.isArray(tags) ? tags.filter((tag) => typeof tag === 'string') : [];
}

/** A misspelt name beside correct ones would otherwise be missed silently. Throws `CONTRACT_INVALID`. */
function checkNamed(what: string, named: readonly string[] = [], known: ReadonlySet<string>): void {
  const unknown = named.find((name) => !known.has(name));
  if (unknown === undefined) return;
  const near = nearest(unknown, [...known]);
  throw invalidDocument(
    `has no ${what} ${JSON.stringify(unknown)}${near.length === 0 ? '' : `; did you mean ${near.join(' or ')}?`}`,
  );
}

function foundVersion(document: Json | undefined): string {
  if (document?.['openapi'] === undefined && document?.['swagger'] !== undefined)
    return `swagger: ${JSON.stringify(document['swagger'])}; convert it first, as with \`npx swagger2openapi\``;
  return `openapi: ${JSON.stringify(document?.['openapi']) ?? 'missing'}`;
}

/** A secret for an unknown scheme would be used by no tool. Throws `CONTRACT_INVALID`. */
function checkSchemes(document: Json, named: readonly string[]): void {
  const schemes = Object.keys(schemesOf(document));
  const unknown = named.find((name) => !schemes.includes(name));
  if (unknown !== undefined)
    throw invalidDocument(`has no security scheme ${JSON.stringify(unknown)}; it has ${schemes.join(', ') || 'none'}`);
}

/** A tool that the registry would refuse is skipped alone, before anything is declared. Throws `NotImportable`. */
async function declarable(spec: DeclaredTool, named: ReturnType<typeof parseToolName>): Promise<CheckedDeclaredTool> {
  try {
    return await declaredToolRecord(spec, { ...named, revision: 1, updatedAtMs: 0, updatedBy: 'import-openapi' });
  } catch (error) {
    if (!(error instanceof PawlError) || error.code !== 'CONTRACT_INVALID') throw error;
    throw new NotImportable(error.message);
  }
}

function isSelected(
  method: string,
  tags: readonly string[],
  called: readonly string[],
  { tags: wantedTags, operations, readOnly }: OpenApiImport,
): boolean {
  if (readOnly === true && !READING.includes(method)) return false;
  if (wantedTags !== undefined && !wantedTags.some((tag) => tags.includes(tag))) return false;
  return operations === undefined || called.some((name) => operations.includes(name));
}

function namespaceOf(title: unknown): string {
  const words = String(title ?? '')
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '_')
    .replaceAll(/^[^a-z]+|_+$/g, '');
  return words === '' ? 'openapi' : words.slice(0, 32);
}

function uniqueName(wished: unknown, taken: Set<string>): string {
  const base =
    String(wished)
      .replaceAll(/[^A-Za-z0-9_-]+/g, '_')
      .replaceAll(/^[^A-Za-z]+|_+$/g, '')
      .slice(0, 60) || 'operation';
  let name = base;
  for (let number = 2; taken.has(name); number += 1) name = `${base}_${number}`;
  taken.add(name);
  return name;
}
