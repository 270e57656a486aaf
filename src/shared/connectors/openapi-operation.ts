/** One operation of an OpenAPI document as a connector: its parameters, body, credentials and address. */
import type { JsonSchema } from '../schema/json-schema.ts';
import { isObject, listOf } from '../util/json/json-types.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { asText } from '../util/text/quote-value.ts';
import { startOf } from '../util/text/text-cut.ts';
import { isTransportHeader, type SecretSource } from './connector.ts';
import type { DeclaredTool } from './declared-tool.ts';
import {
  isVersion30,
  type Json,
  NotImportable,
  objectOf,
  resolveReference,
  resolveSchema,
} from './openapi-references.ts';
import { convertSchema, invalidDocument, numberedName, withDefinitions, withDescription } from './openapi-schema.ts';
import { credentialsOf } from './openapi-security.ts';
import type { ParameterStyle } from './parameter-style.ts';

const LOCATIONS = ['path', 'query', 'header', 'cookie'];
const MAX_DESCRIPTION = 1_024;
const JSON_TYPE = /[/+]json\s*(?:;|$)/i;
/** OpenAPI says these by other means, and ignores parameters of these names. */
const DOCUMENTED_HEADER = /^(?:accept|content-type|authorization)$/i;

export interface OperationOptions {
  /** Default: the document's first server. */
  readonly server?: string;
  /** The source of each security scheme's secret. Default: `PAWL_SECRET_` and the scheme's name. */
  readonly secrets?: Readonly<Record<string, SecretSource>>;
  readonly concurrency?: number;
  readonly perSecond?: number;
}

interface Operation {
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
type AddParameter = (preferred: string, schema: JsonSchema, required: boolean) => string;

/** Throws `NotImportable` for an operation that a connector cannot make, `CONTRACT_INVALID` where the document names no server. */
export function operationTool(source: Operation): DeclaredTool {
  const { document, references, operation, method, path, info, namespace, options } = source;
  const properties: Record<string, JsonSchema> = {};
  const required: string[] = [];
  const routing: Routing = { method: method.toUpperCase() as Routing['method'], url: '' };
  const usedNames = new Set<string>();
  const add: AddParameter = (preferred, schema, isRequired) => {
    const key = parameterName(preferred, usedNames);
    properties[key] = schema;
    if (isRequired) required.push(key);
    return key;
  };
  const [route, query] = splitPath(path);
  Object.assign(routing, credentialsOf(document, operation, options.secrets));
  const pathParams = addParameters(source, routing, add);
  const template = templateOf(route, pathParams);
  addPathQuery(query, pathParams, routing);
  addBody(source, routing, add);
  routing.url = `${serverOf(source)}${template}`;
  if (options.concurrency !== undefined || options.perSecond !== undefined)
    routing.limits = {
      credential: namespace,
      ...defined({ concurrency: options.concurrency, perSecond: options.perSecond }),
    };
  const inputSchema = withDefinitions(document, references, {
    type: 'object',
    properties,
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
  });
  const documentVersion = asText(info['version'] ?? '');
  return {
    kind: 'http',
    version: /^\d+\.\d+\.\d+$/.test(documentVersion) ? documentVersion : '1.0.0',
    description: descriptionOf(operation, method, path),
    inputSchema,
    circuit: { dependency: namespace },
    routing,
  };
}

/** Returns the path's parameters: their names in the tool, by their own. */
function addParameters(source: Operation, routing: Routing, add: AddParameter): ReadonlyMap<string, string> {
  const argumentMap: NonNullable<Routing['arguments']> = {};
  const pathParams = new Map<string, string>();
  for (const parameter of parametersOf(source)) {
    const { name, in: location } = parameter as { readonly name: string; readonly in: string };
    const isRequired = parameter['required'] === true || location === 'path';
    if (!LOCATIONS.includes(location))
      throw new NotImportable(`its parameter ${name} is in a place that no connector writes (${asText(location)})`);
    if (location === 'cookie') {
      if (isRequired) throw new NotImportable(`it needs the cookie ${name}`);
      continue;
    }
    if (location === 'header' && (DOCUMENTED_HEADER.test(name) || isTransportHeader(name))) continue;
    if (isCredential(routing, location, name)) continue;
    // It would go to a place that the document does not name.
    if (location === 'path' && !source.path.includes(`{${name}}`)) continue;
    const schema = withDescription(parameterSchema(source.document, parameter), parameter['description']);
    const style = styleOf(parameter, typesOf(source.document, parameter['schema']));
    // A name in another script leaves nothing that says what the parameter is.
    const key = add(name, withDescription(schema, /[^\x20-\x7e]/.test(name) ? name : undefined), isRequired);
    if (location === 'path') pathParams.set(name, key);
    else argumentMap[key] = { in: location as 'query' | 'header', name, style };
  }
  routing.arguments = argumentMap;
  return pathParams;
}

/** Whether a secret has this place already, so that a model's value would be lost. */
function isCredential({ headers = {}, query = {} }: Routing, location: string, name: string): boolean {
  if (location === 'query') return Object.hasOwn(query, name);
  return location === 'header' && Object.keys(headers).some((each) => each.toLowerCase() === name.toLowerCase());
}

/** The route and the query of a path. A fragment only distinguishes variants of one address, and is dropped. */
function splitPath(path: string): readonly [route: string, query: string] {
  // Behind the server's address it would become a part of the host.
  if (!path.startsWith('/')) throw new NotImportable('its path does not begin with a slash');
  const [address = ''] = path.split('#');
  const queryStart = address.indexOf('?');
  return queryStart === -1 ? [address, ''] : [address.slice(0, queryStart), address.slice(queryStart + 1)];
}

/** Adds the query that a path contains: constants and path parameters. */
function addPathQuery(query: string, pathParams: ReadonlyMap<string, string>, routing: Routing): void {
  const described = new Set(Object.values(routing.arguments ?? {}).map(({ name }) => name));
  const secret = new Set(Object.keys(routing.query ?? {}));
  for (const pair of query.split('&').filter((each) => each !== '')) {
    const equals = pair.indexOf('=');
    const [name = '', value = ''] = (equals === -1 ? [pair] : [pair.slice(0, equals), pair.slice(equals + 1)]).map(
      decodeQueryPart,
    );
    if (described.has(name) || secret.has(name)) continue;
    const [, parameter] = /^\{([^{}]+)\}$/.exec(value) ?? [];
    const key = parameter === undefined ? undefined : pathParams.get(parameter);
    if (key !== undefined) routing.arguments = { ...routing.arguments, [key]: { in: 'query', name, style: 'comma' } };
    else if (/[{}]/.test(name + value))
      throw new NotImportable(`the query of its path names ${value || name}, which it does not describe`);
    else if (Object.hasOwn(routing.query ?? {}, name))
      throw new NotImportable(`the query of its path has ${name} twice`);
    else routing.query = { ...routing.query, [name]: value };
  }
}

function decodeQueryPart(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new NotImportable(`the query of its path has ${startOf(text, 100)}, which cannot be decoded`);
  }
}

/** A path whose placeholders have the names of the tool's parameters. */
function templateOf(path: string, pathParams: ReadonlyMap<string, string>): string {
  const template = path.replaceAll(/\{([^{}]*)\}/g, (_all, name: string) => {
    const key = pathParams.get(name);
    if (key === undefined) throw new NotImportable(`its path names {${name}}, which it does not describe`);
    return `{${key}}`;
  });
  if (/[{}]/.test(template.replaceAll(/\{[^{}]*\}/g, ''))) throw new NotImportable('its path has a stray brace');
  return template;
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
  for (const list of [item['parameters'], operation['parameters']]) {
    // A list by reference would be lost without a word.
    if (isObject(list)) throw new NotImportable('its parameters are no list');
    for (const entry of listOf(list)) {
      const parameter = resolveReference(document, entry);
      // YAML reads some names as numbers or booleans.
      if (parameter === undefined || !['string', 'number', 'boolean'].includes(typeof parameter['name']))
        throw new NotImportable('a parameter of it cannot be found');
      const name = asText(parameter['name']);
      // From 3.1 on, a description beside a reference replaces the one that it leads to.
      const description = isVersion30(document) ? undefined : objectOf(entry)?.['description'];
      found.set(`${asText(parameter['in'])} ${name}`, { ...parameter, name, ...defined({ description }) });
    }
  }
  return [...found.values()];
}

function parameterSchema(document: Json, parameter: Json): JsonSchema {
  const [media] = Object.values(objectOf(parameter['content']) ?? {});
  const schema = parameter['schema'] ?? resolveReference(document, media)?.['schema'];
  return convertSchema(document, schema ?? { type: 'string' });
}

/** The styles of parameters that are not exploded. */
const QUERY_STYLES: ReadonlyMap<unknown, ParameterStyle> = new Map([
  ['form', 'comma'],
  ['spaceDelimited', 'space'],
  ['pipeDelimited', 'pipe'],
]);

/** The types that a schema names, also by its reference and by the schemas that it combines. */
function typesOf(document: Json, schema: unknown, seen = new Set<unknown>()): readonly unknown[] {
  const source = resolveSchema(document, schema);
  if (source === undefined || seen.has(source)) return [];
  seen.add(source);
  const combined = ['allOf', 'oneOf', 'anyOf'].flatMap((keyword) => listOf(source[keyword]));
  const own = source['type'] ?? (source['properties'] === undefined ? [] : 'object');
  return [own, ...combined.flatMap((part) => typesOf(document, part, seen))].flat();
}

/** The style of a parameter's lists and objects (OpenAPI's `style` and `explode`). */
function styleOf({ name, in: location, content, ...parameter }: Json, types: readonly unknown[]): ParameterStyle {
  if (content !== undefined) {
    const [type = ''] = Object.keys(objectOf(content) ?? {});
    if (/^text\//i.test(type)) return 'comma';
    if (!JSON_TYPE.test(type)) throw new NotImportable(`its parameter ${name} is of the type ${type || 'unknown'}`);
    if (location === 'path') throw new NotImportable(`its parameter ${name} is JSON in the path`);
    return 'json';
  }
  const inQuery = location === 'query';
  const style = parameter['style'] ?? (inQuery ? 'form' : 'simple');
  const isExploded = parameter['explode'] ?? style === 'form';
  const isObject = types.includes('object');
  if (!inQuery && style === 'simple' && !(isExploded && isObject)) return 'comma';
  if (inQuery && style === 'deepObject') return 'deep';
  const separatedStyle = inQuery ? QUERY_STYLES.get(style) : undefined;
  if (separatedStyle === undefined) {
    const exploded = style === 'simple' ? ', an exploded object' : '';
    throw new NotImportable(`its parameter ${name} is of the style ${asText(style)}${exploded}`);
  }
  if (!isExploded) return separatedStyle;
  // A parameter without a type may be an object.
  return isObject || types.length === 0 ? 'members' : 'repeat';
}

/** The styles of the members of a form that its `encoding` names. The other ones are written as a connector does anyway. */
function formStylesOf(document: Json, media: Json | undefined): Readonly<Record<string, ParameterStyle>> {
  const properties = objectOf(resolveSchema(document, media?.['schema'])?.['properties']) ?? {};
  const styles = Object.entries(objectOf(media?.['encoding']) ?? {}).flatMap(([name, value]) => {
    const { contentType, ...encoding } = objectOf(value) ?? {};
    if (encoding['style'] !== undefined || encoding['explode'] !== undefined)
      return [[name, styleOf({ name, in: 'query', ...encoding }, typesOf(document, properties[name]))] as const];
    return typeof contentType === 'string' && JSON_TYPE.test(contentType) ? [[name, 'json'] as const] : [];
  });
  return Object.fromEntries(styles);
}

function addBody({ document, operation, method }: Operation, routing: Routing, add: AddParameter): void {
  const isRead = method === 'get' || method === 'head';
  // OpenAPI 3.0 ignores the body of a read. Later versions allow one.
  if (operation['requestBody'] === undefined || (isRead && isVersion30(document))) {
    routing.body = 'none';
    return;
  }
  if (isRead) throw new NotImportable(`it has a body, which ${method.toUpperCase()} cannot send`);
  const request = resolveReference(document, operation['requestBody']);
  const content = resolveReference(document, request?.['content']) ?? {};
  // The type that a connector sends by default comes first among its kind; any other is set in a header.
  const kinds = [
    [/^application\/(?:json|\*\+json)\s*(?:;|$)/i, 'json', false],
    [JSON_TYPE, 'json', true],
    [/^(?:application\/)?\*/, 'json', false],
    [/^application\/x-www-form-urlencoded/i, 'form', false],
    [/^text\/(?:plain\s*(?:;|$)|\*)/i, 'text', false],
    [/^text\//i, 'text', true],
  ] as const;
  for (const [pattern, body, isNamed] of kinds) {
    const type = Object.keys(content).find((each) => pattern.test(each));
    if (type === undefined) continue;
    const media = resolveReference(document, content[type]);
    const types = typesOf(document, media?.['schema']);
    // A connector would write JSON, and say that it is XML.
    if (body === 'text' && isNamed && ['object', 'array'].some((each) => types.includes(each))) continue;
    const schema = convertSchema(document, media?.['schema'] ?? {});
    routing.body = body;
    if (isNamed)
      routing.headers = {
        ...routing.headers,
        'content-type': body === 'text' ? `${type.replace(/;\s*charset=[^;]*/i, '')}; charset=utf-8` : type,
      };
    if (body === 'form') routing.formStyles = formStylesOf(document, media);
    routing.bodyFrom = add('body', withDescription(schema, request?.['description']), request?.['required'] === true);
    return;
  }
  // Without the body that no connector can send, such an operation would seem to work, also where its body is optional.
  const types = Object.keys(content);
  if (types.length > 0 || request?.['required'] === true)
    throw new NotImportable(`its body is of the type ${types.join(', ') || 'unknown'}`);
  routing.body = 'none';
}

/** The address of the first server that HTTP reaches: one of the operation's own, else of its path's, else of the document's. */
function serverOf({ document, item, operation, options }: Operation): string {
  const own = [operation['servers'], item['servers']].map(serverAddresses).find((list) => list.length > 0);
  const addresses = own ?? serverAddresses(document['servers']);
  const [first = ''] = addresses;
  if (options.server !== undefined) return withBasePath(options.server, first).replace(/\/+$/, '');
  const address = addresses.find((each) => /^https?:\/\/[^/{}]+(?:\/[^{}]*)?$/i.test(each));
  if (address !== undefined) return address.replace(/\/+$/, '');
  const reason = `names no server with a whole address (${JSON.stringify(first)}): say which one with --server`;
  throw own === undefined ? invalidDocument(reason) : new NotImportable(`it ${reason}`);
}

/** The addresses of servers, their variables filled in. A variable without a default stays, so that the address is none. */
function serverAddresses(servers: unknown): readonly string[] {
  return (Array.isArray(servers) ? servers : []).map((server: unknown) => {
    const variables = objectOf(objectOf(server)?.['variables']) ?? {};
    return asText(objectOf(server)?.['url'] ?? '')
      .trim()
      .replaceAll(/\{([^{}]*)\}/g, (all, name: string) => asText(objectOf(variables[name])?.['default'] ?? all))
      .replace(/^\/\//, 'https://');
  });
}

/** A document's relative address belongs to the host that it comes from. A server that is given with a path says the whole address. */
function withBasePath(server: string, address: string): string {
  if (!URL.canParse(server) || new URL(server).pathname !== '/' || !/^\.{0,2}\/[^/]/.test(address)) return server;
  return new URL(address, server).href;
}

function parameterName(preferred: string, usedNames: Set<string>): string {
  const plain = preferred.replaceAll(/[^A-Za-z0-9_-]+/g, '_').replaceAll(/^_+|_+$/g, '');
  return numberedName(plain || 'parameter', usedNames);
}
