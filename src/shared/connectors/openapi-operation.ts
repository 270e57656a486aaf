/** One operation of an OpenAPI document as a connector: its parameters, body, credentials and address. */
import type { JsonSchema } from '../schema/json-schema.ts';
import { startOf } from '../util/text/text-cut.ts';
import type { SecretSource } from './connector.ts';
import type { DeclaredTool } from './declared-tool.ts';
import {
  converted,
  described,
  invalidDocument,
  type Json,
  NotImportable,
  objectOf,
  resolved,
  withDefinitions,
} from './openapi-schema.ts';
import type { ParameterStyle } from './parameter-style.ts';

const PLACES = ['path', 'query', 'header', 'cookie'];
const MAX_DESCRIPTION = 1_024;

export interface OperationOptions {
  /** Default: the document's first server. */
  readonly server?: string;
  /** The source of each security scheme's secret. Default: `PAWL_SECRET_` and the scheme's name. */
  readonly secrets?: Readonly<Record<string, SecretSource>>;
  readonly concurrency?: number;
  readonly perSecond?: number;
}

export interface Operation {
  readonly document: Json;
  /** The references of the document's schemas, by the names of their definitions. */
  readonly references: ReadonlyMap<string, string>;
  readonly item: Json;
  readonly operation: Json;
  readonly method: 'get' | 'head' | 'post' | 'put' | 'patch' | 'delete';
  readonly path: string;
  readonly namespace: string;
  readonly info: Json;
  readonly options: OperationOptions;
}

type HttpTool = Extract<DeclaredTool, { kind: 'http' }>;
type Routing = { -readonly [K in keyof HttpTool['routing']]: HttpTool['routing'][K] };
/** Returns the name of the tool's parameter. */
type AddParameter = (wished: string, schema: JsonSchema, required: boolean) => string;

/** Throws `NotImportable` for an operation that a connector cannot make, `CONTRACT_INVALID` where the document names no server. */
export function operationTool(of: Operation): DeclaredTool {
  const { document, references, operation, method, path, info, namespace, options } = of;
  const properties: Record<string, JsonSchema> = {};
  const required: string[] = [];
  const routing: Routing = { method: method.toUpperCase() as Routing['method'], url: '' };
  const usedNames = new Set<string>();
  const add: AddParameter = (wished, schema, isRequired) => {
    const key = parameterName(wished, usedNames);
    properties[key] = schema;
    if (isRequired) required.push(key);
    return key;
  };
  const [route, query] = splitPath(path);
  const inPath = addParameters(of, routing, add);
  const template = templateOf(route, inPath);
  addQueryOfPath(query, inPath, routing);
  addBody(of, routing, add);
  addSecurity(of, routing);
  routing.url = `${serverOf(of)}${template}`;
  if (options.concurrency !== undefined || options.perSecond !== undefined)
    routing.limits = {
      credential: namespace,
      ...(options.concurrency === undefined ? {} : { concurrency: options.concurrency }),
      ...(options.perSecond === undefined ? {} : { perSecond: options.perSecond }),
    };
  const inputSchema = withDefinitions(document, references, {
    type: 'object',
    properties,
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
  });
  const semantic = String(info['version'] ?? '');
  return {
    kind: 'http',
    version: /^\d+\.\d+\.\d+$/.test(semantic) ? semantic : '1.0.0',
    description: descriptionOf(operation, method, path),
    inputSchema,
    circuit: { dependency: namespace },
    routing,
  };
}

/** Returns the path's parameters: their names in the tool, by their own. */
function addParameters(of: Operation, routing: Routing, add: AddParameter): ReadonlyMap<string, string> {
  const mapped: NonNullable<Routing['arguments']> = {};
  const inPath = new Map<string, string>();
  for (const parameter of parametersOf(of)) {
    const { name, in: place } = parameter as { readonly name: string; readonly in: string };
    const needed = parameter['required'] === true || place === 'path';
    if (!PLACES.includes(place))
      throw new NotImportable(`its parameter ${name} is in no place that there is (${place})`);
    if (place === 'cookie') {
      if (needed) throw new NotImportable(`it needs the cookie ${name}`);
      continue;
    }
    if (place === 'header' && /^(?:accept|content-type|authorization)$/i.test(name)) continue;
    const schema = parameterSchema(of.document, parameter);
    const style = styleOf(parameter, schema);
    const key = add(name, described(schema, parameter['description']), needed);
    if (place === 'path') inPath.set(name, key);
    else mapped[key] = { in: place as 'query' | 'header', name, style };
  }
  routing.arguments = mapped;
  return inPath;
}

/** A path without its fragment, which only tells variants of one address apart, and its query. */
function splitPath(path: string): readonly [route: string, query: string] {
  // Behind the server's address it would become a part of the host.
  if (!path.startsWith('/')) throw new NotImportable('its path does not begin with a slash');
  const [address = ''] = path.split('#');
  const mark = address.indexOf('?');
  return mark === -1 ? [address, ''] : [address.slice(0, mark), address.slice(mark + 1)];
}

/** The query that a path brings: constants, and the parameters of the path that stand in it. */
function addQueryOfPath(query: string, inPath: ReadonlyMap<string, string>, routing: Routing): void {
  const described = new Set(Object.values(routing.arguments ?? {}).map(({ name }) => name));
  for (const pair of query.split('&').filter((each) => each !== '')) {
    const sign = pair.indexOf('=');
    const [name = '', value = ''] = (sign === -1 ? [pair] : [pair.slice(0, sign), pair.slice(sign + 1)]).map(
      decodedPart,
    );
    if (described.has(name)) continue;
    const [, parameter] = /^\{([^{}]+)\}$/.exec(value) ?? [];
    const key = parameter === undefined ? undefined : inPath.get(parameter);
    if (key !== undefined) routing.arguments = { ...routing.arguments, [key]: { in: 'query', name, style: 'comma' } };
    else if (value.includes('{'))
      throw new NotImportable(`the query of its path names ${value}, which it does not describe`);
    else routing.query = { ...routing.query, [name]: value };
  }
}

function decodedPart(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new NotImportable(`the query of its path has ${startOf(text, 100)}, which cannot be decoded`);
  }
}

/** A path with the tool's names in its places. */
function templateOf(path: string, inPath: ReadonlyMap<string, string>): string {
  return path.replaceAll(/\{([^{}]*)\}/g, (_all, name: string) => {
    const key = inPath.get(name);
    if (key === undefined) throw new NotImportable(`its path names {${name}}, which it does not describe`);
    return `{${key}}`;
  });
}

function descriptionOf(operation: Json, method: string, path: string): string {
  const texts = [operation['summary'], operation['description']].filter(
    (text): text is string => typeof text === 'string' && text.trim() !== '',
  );
  const text = texts[0] !== undefined && texts[1]?.startsWith(texts[0]) === true ? texts[1] : texts.join('\n\n');
  return startOf(text === '' ? `${method.toUpperCase()} ${path}` : text, MAX_DESCRIPTION);
}

/** The parameters of the path, replaced by the operation's own of the same name and place. */
function parametersOf({ document, item, operation }: Operation): readonly Json[] {
  const found = new Map<string, Json>();
  for (const list of [item['parameters'], operation['parameters']])
    for (const given of Array.isArray(list) ? list : []) {
      const parameter = resolved(document, given);
      if (parameter === undefined || typeof parameter['name'] !== 'string')
        throw new NotImportable('a parameter of it cannot be found');
      found.set(`${parameter['in']} ${parameter['name']}`, parameter);
    }
  return [...found.values()];
}

function parameterSchema(document: Json, parameter: Json): JsonSchema {
  const content = objectOf(parameter['content']);
  const schema = parameter['schema'] ?? objectOf(Object.values(content ?? {})[0])?.['schema'];
  return converted(document, schema ?? { type: 'string' });
}

/** The styles of parameters that are not exploded. */
const QUERY_STYLES: ReadonlyMap<unknown, ParameterStyle> = new Map([
  ['form', 'comma'],
  ['spaceDelimited', 'space'],
  ['pipeDelimited', 'pipe'],
]);

/** The style of a parameter's lists and objects (OpenAPI's `style` and `explode`). */
function styleOf({ name, in: place, content, ...parameter }: Json, schema: JsonSchema): ParameterStyle {
  if (content !== undefined) {
    if (place === 'path') throw new NotImportable(`its parameter ${name} is JSON in the path`);
    return 'json';
  }
  const inQuery = place === 'query';
  const style = parameter['style'] ?? (inQuery ? 'form' : 'simple');
  const isExploded = parameter['explode'] ?? style === 'form';
  const isObject = [schema['type']].flat().includes('object');
  if (!inQuery && style === 'simple' && !(isExploded && isObject)) return 'comma';
  if (inQuery && style === 'deepObject') return 'deep';
  const separated = inQuery ? QUERY_STYLES.get(style) : undefined;
  if (separated === undefined) throw new NotImportable(`its parameter ${name} is of the style ${style}`);
  if (!isExploded) return separated;
  // A parameter without a type may be an object.
  return isObject || schema['type'] === undefined ? 'members' : 'repeat';
}

function addBody({ document, operation }: Operation, routing: Routing, add: AddParameter): void {
  if (operation['requestBody'] === undefined) {
    routing.body = 'none';
    return;
  }
  const request = resolved(document, operation['requestBody']);
  const content = objectOf(request?.['content']) ?? {};
  // The type that a connector sends by itself comes first among its kind; others are named in a header.
  const kinds = [
    [/^application\/json\s*(?:;|$)/i, 'json', false],
    [/[/+]json\b/, 'json', true],
    [/^(?:application\/)?\*/, 'json', false],
    [/^application\/x-www-form-urlencoded/, 'form', false],
    [/^text\/(?:plain\s*(?:;|$)|\*)/i, 'text', false],
    [/^text\//, 'text', true],
  ] as const;
  for (const [pattern, body, isNamed] of kinds) {
    const type = Object.keys(content).find((each) => pattern.test(each));
    if (type === undefined) continue;
    const media = objectOf(content[type]);
    const schema = converted(document, media?.['schema'] ?? {});
    routing.body = body;
    if (isNamed) routing.headers = { 'content-type': body === 'text' ? `${type}; charset=utf-8` : type };
    const styles = Object.values(objectOf(media?.['encoding']) ?? {}).map((encoding) => objectOf(encoding)?.['style']);
    if (body === 'form' && styles.includes('deepObject')) routing.formStyle = 'deep';
    routing.bodyFrom = add('body', described(schema, request?.['description']), request?.['required'] === true);
    return;
  }
  if (request?.['required'] === true)
    throw new NotImportable(`its body is of the type ${Object.keys(content).join(', ') || 'unknown'}`);
  routing.body = 'none';
}

/** Chooses among the ways to authenticate that a header or the query can express: the first one with a named secret, else the first. */
function addSecurity({ document, operation, options }: Operation, routing: Routing): void {
  const requirements = operation['security'] ?? document['security'];
  const ways = (Array.isArray(requirements) ? requirements : []).map((way) => Object.keys(objectOf(way) ?? {}));
  const isNamed = (way: readonly string[]) => way.some((name) => options.secrets?.[name] !== undefined);
  const named = ways.filter(isNamed);
  const others = ways.some((way) => way.length === 0) ? [] : ways.filter((way) => !isNamed(way));
  let unserializable: NotImportable | undefined;
  for (const way of [...named, ...others]) {
    try {
      const { headers, ...rest } = credentials(document, way, options);
      const query = { ...routing.query, ...rest.query };
      Object.assign(routing, rest, { headers: { ...routing.headers, ...headers } });
      if (Object.keys(query).length > 0) routing.query = query;
      return;
    } catch (error) {
      if (!(error instanceof NotImportable)) throw error;
      unserializable ??= error;
    }
  }
  if (unserializable !== undefined) throw unserializable;
}

function credentials(
  document: Json,
  way: readonly string[],
  options: OperationOptions,
): Pick<Routing, 'headers' | 'query' | 'secrets'> {
  const schemes = schemesOf(document);
  const headers: Record<string, string> = {};
  const query: Record<string, string> = {};
  const secrets: Record<string, SecretSource> = {};
  for (const name of way) {
    const scheme = resolved(document, schemes[name]) ?? {};
    const secret = name.replaceAll(/[^A-Za-z0-9_-]/g, '_').replace(/^[^A-Za-z]/, 's$&');
    secrets[secret] = options.secrets?.[name] ?? { env: `PAWL_SECRET_${secret.replaceAll('-', '_').toUpperCase()}` };
    const value = `{secret:${secret}}`;
    if (scheme['type'] === 'apiKey' && scheme['in'] === 'header') headers[String(scheme['name'])] = value;
    else if (scheme['type'] === 'apiKey' && scheme['in'] === 'query') query[String(scheme['name'])] = value;
    else if (scheme['type'] === 'http' && String(scheme['scheme']).toLowerCase() === 'basic')
      headers['authorization'] = `Basic ${value}`;
    else if (
      ['oauth2', 'openIdConnect'].includes(String(scheme['type'])) ||
      (scheme['type'] === 'http' && String(scheme['scheme']).toLowerCase() === 'bearer')
    )
      headers['authorization'] = `Bearer ${value}`;
    else throw new NotImportable(`it is secured by ${name}, which no header can say`);
  }
  return { headers, query, secrets };
}

function serverOf({ document, item, operation, options }: Operation): string {
  if (options.server !== undefined) return options.server.replace(/\/+$/, '');
  const [server] = [operation['servers'], item['servers'], document['servers']].flatMap((servers) =>
    Array.isArray(servers) ? servers : [],
  );
  const variables = objectOf(objectOf(server)?.['variables']) ?? {};
  const url = String(objectOf(server)?.['url'] ?? '').replaceAll(/\{([^{}]*)\}/g, (_all, name: string) =>
    String(objectOf(variables[name])?.['default'] ?? ''),
  );
  if (!/^https?:\/\//.test(url))
    throw invalidDocument(`names no server with a whole address (${JSON.stringify(url)}): say which one with --server`);
  return url.replace(/\/+$/, '');
}

export function schemesOf(document: Json): Json {
  return objectOf(objectOf(document['components'])?.['securitySchemes']) ?? {};
}

function parameterName(wished: string, usedNames: Set<string>): string {
  const base = wished.replaceAll(/[^A-Za-z0-9_-]+/g, '_').replaceAll(/^_+|_+$/g, '') || 'parameter';
  let name = base;
  for (let number = 2; usedNames.has(name); number += 1) name = `${base}_${number}`;
  usedNames.add(name);
  return name;
}
