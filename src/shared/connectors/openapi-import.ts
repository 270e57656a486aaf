/**
 * OpenAPI documents (3.0 to 3.2) as connectors: one declared tool for each operation. Pure functions; references within the document are
 * followed, references out of it are not.
 */
import { PawlError } from '../errors/failure.ts';
import { didYouMean } from '../util/text/nearest.ts';
import { asText } from '../util/text/quote-value.ts';
import { type CheckedDeclaredTool, type DeclaredTool, declaredToolRecord, parseToolName } from './declared-tool.ts';
import { type OperationOptions, operationTool } from './openapi-operation.ts';
import { type Json, NotImportable, objectOf, referencesOf, resolveWithSiblings } from './openapi-references.ts';
import { invalidDocument, numberedName } from './openapi-schema.ts';
import { schemesOf } from './openapi-security.ts';

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

interface ImportedOpenApi {
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
const READ_METHODS = ['get', 'head'];

/**
 * Throws `CONTRACT_INVALID` for a document that is not OpenAPI 3 or names no server, and for options that name a security scheme, tag or
 * operation that it does not have.
 */
export async function importOpenApi(input: unknown, options: OpenApiImport = {}): Promise<ImportedOpenApi> {
  const document = objectOf(input);
  // YAML reads `openapi: 3.0` as a number.
  const version = asText(document?.['openapi']);
  if (document === undefined || !/^3(?:\.[012](?:\.|$)|$)/.test(version))
    throw invalidDocument(`is no OpenAPI document of version 3.0, 3.1 or 3.2 (${describeVersion(document)})`);
  checkSchemes(document, Object.keys(options.secrets ?? {}));
  const info = objectOf(document['info']) ?? {};
  const namespace = options.namespace ?? namespaceOf(info['title']);
  const names = new Set<string>();
  const tools: ImportedOpenApi['tools'][number][] = [];
  const skipped: ImportedOpenApi['skipped'][number][] = [];
  const skip = (operation: string, error: unknown) => {
    if (!(error instanceof NotImportable)) throw error;
    skipped.push({ operation, reason: error.message });
  };
  const references = referencesOf(document);
  const found = { tag: new Set<string>(), operation: new Set<string>() };
  for (const [path, pathItem] of Object.entries(pathsOf(document))) {
    let item: Json | undefined;
    try {
      // An operation may stand beside the reference to others.
      item = resolveWithSiblings(document, pathItem);
    } catch (error) {
      skip(path, error);
    }
    for (const method of otherMethodsOf(item))
      if (options.operations === undefined)
        skipped.push({ operation: `${method.toUpperCase()} ${path}`, reason: 'its method cannot be called' });
    for (const method of METHODS) {
      const described = objectOf(item?.[method]);
      if (item === undefined || described === undefined) continue;
      const { operation, fault } = operationOf(document, described);
      const tags = tagsOf(operation);
      const operationNames = namesOf(operation, method, path);
      for (const tag of tags) found.tag.add(tag);
      for (const name of operationNames) found.operation.add(name);
      if (!isSelected(method, tags, operationNames, options)) continue;
      try {
        if (fault !== undefined) throw fault;
        const spec = operationTool({ document, references, item, operation, method, path, namespace, info, options });
        const name = `${namespace}.${uniqueName([operation['operationId'], `${method}_${path}`], names)}`;
        const { record, changes } = await checkDeclarable(spec, parseToolName(name));
        tools.push({ name, spec: { ...spec, inputSchema: record.inputSchema }, changes });
      } catch (error) {
        skip(operationNames[0], error);
      }
    }
  }
  checkRequested('tag', options.tags, found.tag);
  checkRequested('operation', options.operations, found.operation);
  return { namespace, tools, skipped };
}

function pathsOf(document: Json): Json {
  try {
    return resolveWithSiblings(document, document['paths']);
  } catch (error) {
    throw error instanceof NotImportable ? invalidDocument(`has no paths: ${error.message}`) : error;
  }
}

/** An operation by reference is none of OpenAPI's, but documents of several files have them. */
function operationOf(document: Json, described: Json): { readonly operation: Json; readonly fault?: NotImportable } {
  try {
    return { operation: resolveWithSiblings(document, described) };
  } catch (error) {
    if (!(error instanceof NotImportable)) throw error;
    return { operation: described, fault: error };
  }
}

function otherMethodsOf(item: Json | undefined): readonly string[] {
  const described = OTHER_METHODS.filter((method) => objectOf(item?.[method]) !== undefined);
  return [...described, ...Object.keys(objectOf(item?.['additionalOperations']) ?? {})];
}

function namesOf({ operationId }: Json, method: string, path: string): readonly [string, ...string[]] {
  const methodAndPath = `${method.toUpperCase()} ${path}`;
  return typeof operationId === 'string' ? [operationId, methodAndPath] : [methodAndPath];
}

function tagsOf({ tags }: Json): string[] {
  return Array.isArray(tags) ? tags.filter((tag) => typeof tag === 'string') : [];
}

/** Throws `CONTRACT_INVALID` for an unknown name, because a misspelt one would otherwise be ignored. */
function checkRequested(kind: string, requested: readonly string[] = [], found: ReadonlySet<string>): void {
  const unknown = requested.find((name) => !found.has(name));
  if (unknown === undefined) return;
  const hint = didYouMean(unknown, [...found]);
  throw invalidDocument(`has no ${kind} ${JSON.stringify(unknown)}${hint && `; ${hint}`}`);
}

function describeVersion(document: Json | undefined): string {
  if (document?.['openapi'] === undefined && document?.['swagger'] !== undefined)
    return `swagger: ${JSON.stringify(document['swagger'])}; convert it first, as with \`npx swagger2openapi\``;
  return `openapi: ${JSON.stringify(document?.['openapi']) ?? 'missing'}`;
}

/** A secret for an unknown scheme would be used by no tool. Throws `CONTRACT_INVALID`. */
function checkSchemes(document: Json, requested: readonly string[]): void {
  const schemes = Object.keys(schemesOf(document));
  const unknown = requested.find((name) => !schemes.includes(name));
  if (unknown !== undefined)
    throw invalidDocument(`has no security scheme ${JSON.stringify(unknown)}; it has ${schemes.join(', ') || 'none'}`);
}

/** Throws `NotImportable` for a tool that the registry would refuse, so that only that one is skipped. */
async function checkDeclarable(
  spec: DeclaredTool,
  toolName: ReturnType<typeof parseToolName>,
): Promise<CheckedDeclaredTool> {
  try {
    return await declaredToolRecord(spec, { ...toolName, revision: 1, updatedAtMs: 0, updatedBy: 'import-openapi' });
  } catch (error) {
    if (!(error instanceof PawlError) || error.code !== 'CONTRACT_INVALID') throw error;
    throw new NotImportable(error.message);
  }
}

function isSelected(
  method: string,
  tags: readonly string[],
  operationNames: readonly string[],
  { tags: selectedTags, operations, readOnly }: OpenApiImport,
): boolean {
  if (readOnly === true && !READ_METHODS.includes(method)) return false;
  if (selectedTags !== undefined && !selectedTags.some((tag) => tags.includes(tag))) return false;
  return operations === undefined || operationNames.some((name) => operations.includes(name));
}

function namespaceOf(title: unknown): string {
  const words = asText(title ?? '')
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '_')
    .replaceAll(/^[^a-z]+|_+$/g, '');
  return words === '' ? 'openapi' : words.slice(0, 32);
}

/** The first of the texts that leaves a name. */
function uniqueName(preferred: readonly unknown[], usedNames: Set<string>): string {
  const plain = preferred.map((text) =>
    asText(text ?? '')
      .replaceAll(/[^A-Za-z0-9_-]+/g, '_')
      .replaceAll(/^[^A-Za-z]+|_+$/g, '')
      .slice(0, 60),
  );
  return numberedName(plain.find((name) => name !== '') ?? 'operation', usedNames);
}
