/**
 * Builds the request of one connector call. A pure function; secrets are filled in where the request is sent. Parameters
 * are data: none of them can change the host, leave the path or end a header.
 */
import { PawlError } from '../errors/failure.ts';
import { isObject } from '../util/json/json-types.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { matches } from '../util/wildcard.ts';
import { type Connector, type ConnectorArgument, hostMatches, placeholdersOf } from './connector.ts';
import {
  invalidParameter,
  joinPairs,
  joinText,
  membersOf,
  type ParameterStyle,
  pairsOf,
  plainText,
  setQueryParameter,
} from './parameter-style.ts';

export interface ConnectorRequest {
  readonly method: string;
  readonly url: URL;
  /** The values still contain `{secret:NAME}`. */
  readonly headers: Readonly<Record<string, string>>;
  readonly secretQuery: Readonly<Record<string, string>>;
  readonly body?: string;
}

type Params = Readonly<Record<string, unknown>>;

const PLACEHOLDER = /\{([^{}]*)\}/g;
const SECRET = '{secret:';
const BODILESS = ['GET', 'HEAD', 'DELETE'];

/** Throws `INVALID_PARAMS` for parameters that cannot be sent, and `PERMISSION_DENIED` for a request outside of the allow list. */
export function connectorRequest(connector: Connector, params: Params): ConnectorRequest {
  const url = new URL(fillPath(connector.url, params));
  const headers = new Map<string, string>();
  const body: BodyMembers = { values: new Map(), styles: new Map() };
  placeParameters(connector, params, { url, headers, body });
  const secretQuery = fillQuery(connector, params, url);
  fillHeaders(connector, params, headers);
  const requestBody = buildBody(connector, params, body);
  // Services refuse a content type without a body.
  if (requestBody === undefined) headers.delete('content-type');
  requireAllowed(connector, url);
  return {
    method: connector.method,
    url,
    headers: {
      accept: 'application/json, text/*;q=0.9, */*;q=0.1',
      ...(requestBody !== undefined && { 'content-type': requestBody.type }),
      ...Object.fromEntries(headers),
    },
    secretQuery,
    ...(requestBody !== undefined && { body: requestBody.text }),
  };
}

/** Members are collected in maps, because an assignment to an object would lose the name `__proto__`. */
interface BodyMembers {
  readonly values: Map<string, unknown>;
  readonly styles: Map<string, ParameterStyle>;
}

/** Puts each parameter into the query, a header or the body. Parameters of the path and of templates are filled in elsewhere. */
function placeParameters(
  connector: Connector,
  params: Params,
  { url, headers, body }: { readonly url: URL; readonly headers: Map<string, string>; readonly body: BodyMembers },
): void {
  const templateNames = new Set(placeholdersOf(connector).map(([, name]) => name));
  const isReserved = (name: string) => queryNames(connector).includes(name);
  const query: string[] = [];
  for (const [param, value] of Object.entries(params)) {
    const argument = ownMember(connector.arguments, param) ?? defaultArgument(connector, param, templateNames);
    // In a JSON body null is a value: many services clear a field by it.
    const isNullInBody = value === null && argument?.in === 'body' && connector.body === 'json';
    if (argument === undefined || value === undefined || (value === null && !isNullInBody)) continue;
    const { name = param, style } = argument;
    if (argument.in === 'query') query.push(joinPairs(pairsOf({ param, name, style, isReserved }, value)));
    else if (argument.in === 'header')
      headers.set(name.toLowerCase(), headerText(param, withoutPlaceholders(headerValue(param, value, argument))));
    else if (argument.in === 'body') {
      body.values.set(name, value);
      body.styles.set(name, style);
    }
  }
  url.search = [url.search.slice(1), ...query].filter((part) => part !== '').join('&');
}

/** Fills the templates of the query. Returns those that need a secret. */
function fillQuery(connector: Connector, params: Params, url: URL): Readonly<Record<string, string>> {
  const secretQuery = new Map<string, string>();
  for (const [name, template] of Object.entries(connector.query)) {
    const text = fillTemplate(template, params);
    if (text?.includes(SECRET) === true) secretQuery.set(name, text);
    else if (text !== undefined) setQueryParameter(url, name, text);
  }
  return Object.fromEntries(secretQuery);
}

function fillHeaders(connector: Connector, params: Params, headers: Map<string, string>): void {
  for (const [name, template] of Object.entries(connector.headers)) {
    const text = fillTemplate(template, params);
    if (text !== undefined) headers.set(name.toLowerCase(), headerText(name, text));
  }
}

/** Checks whether a connector may request this address. Throws `PERMISSION_DENIED`. */
export function requireAllowed({ url: connectorUrl, method, allow }: Connector, url: URL): void {
  const hosts = allow.hosts ?? [new URL(connectorUrl.replaceAll(PLACEHOLDER, 'x')).host];
  const refuse = (reason: string) => {
    throw new PawlError('PERMISSION_DENIED', `The connector may not ask ${url.origin}${url.pathname}: ${reason}.`);
  };
  if (url.protocol !== 'https:' && url.protocol !== new URL(connectorUrl.replaceAll(PLACEHOLDER, 'x')).protocol)
    refuse(`${url.protocol}// is not what it was declared with`);
  if (!hosts.some((pattern) => hostMatches(pattern, url))) refuse('its host is not on the list');
  if (allow.methods !== undefined && !(allow.methods as readonly string[]).includes(method))
    refuse('the method is not on the list');
  if (allow.paths !== undefined && !allow.paths.some((pattern) => matches(pattern, url.pathname)))
    refuse('its path is not on the list');
}

/** The place of a parameter that the declaration does not mention; undefined for one that a template uses. */
function defaultArgument(
  connector: Connector,
  param: string,
  templateNames: ReadonlySet<string>,
): ConnectorArgument | undefined {
  if (templateNames.has(param) || connector.bodyFrom === param) return undefined;
  const inBody = !BODILESS.includes(connector.method) && connector.body !== 'none' && connector.bodyFrom === undefined;
  return { in: inBody ? 'body' : 'query', style: 'repeat' };
}

function queryNames({ arguments: argumentMap, query, pagination }: Connector): readonly string[] {
  const argumentNames = Object.entries(argumentMap).flatMap(([param, { in: location, name = param }]) =>
    location === 'query' ? [name] : [],
  );
  const page = pagination !== undefined && 'parameter' in pagination ? (pagination.parameter ?? []) : [];
  return [...Object.keys(query), ...argumentNames].concat(page);
}

function fillPath(template: string, params: Params): string {
  return template.replaceAll(PLACEHOLDER, (_placeholder, name: string) => {
    const value = ownMember(params, name);
    if (value === undefined || value === null) throw invalidParameter(name, 'is needed for the path and missing');
    const text = joinText(name, value, ',', encodePathPart(name));
    // A dot segment would leave the path, encoded or not.
    if (text === '' || text === '.' || text === '..')
      throw invalidParameter(name, `cannot stand in a path: ${JSON.stringify(text)}`);
    return text;
  });
}

function encodePathPart(param: string): (text: string) => string {
  return (text) => {
    if (!text.isWellFormed()) throw invalidParameter(param, 'holds half a character, which no address can');
    return encodeURIComponent(text);
  };
}

/** A template with its parameters filled in; undefined when one of them is missing. */
function fillTemplate(template: string, params: Params): string | undefined {
  let isMissing = false;
  const text = template.replaceAll(PLACEHOLDER, (placeholder, name: string) => {
    if (name.startsWith('secret:')) return placeholder;
    const value = ownMember(params, name);
    if (value === undefined || value === null) isMissing = true;
    return isMissing ? '' : withoutPlaceholders(plainText(name, value));
  });
  if (!isMissing && text.split(SECRET).length !== template.split(SECRET).length)
    throw invalidParameter('', `name a secret together, in ${JSON.stringify(template)}`);
  return isMissing ? undefined : text;
}

/** A parameter's text is never a placeholder, because secrets are filled in afterwards. */
function withoutPlaceholders(text: string): string {
  return text.replaceAll(SECRET, '{ secret:');
}

function headerValue(param: string, value: unknown, { style }: ConnectorArgument): string {
  if (style !== 'json') return joinText(param, value, ',');
  // A header takes no other characters; JSON can escape them.
  return JSON.stringify(value).replaceAll(
    /[^\x20-\x7e]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

interface RequestBody {
  readonly type: string;
  readonly text: string;
}

/** The request's body; undefined for a request without one. Throws `INVALID_PARAMS` for one that is too large. */
function buildBody(connector: Connector, params: Params, { values, styles }: BodyMembers): RequestBody | undefined {
  const { method, body, bodyFrom } = connector;
  const bodyParam = bodyFrom === undefined ? undefined : ownMember(params, bodyFrom);
  const members = Object.fromEntries(values);
  // Only JSON has a null.
  const isMissing = bodyParam === undefined || (bodyParam === null && body !== 'json');
  const isEmptyBody = bodyFrom === undefined ? values.size === 0 : isMissing;
  if (body === 'none' || (isEmptyBody && (BODILESS.includes(method) || bodyFrom !== undefined))) return undefined;
  const requestBody = encodeBody(connector, bodyFrom === undefined ? members : bodyParam, styles);
  // A UTF-16 unit has at most three bytes in UTF-8, so most bodies need not be measured.
  const { maxRequestBytes } = connector;
  if (requestBody.text.length * 3 > maxRequestBytes && Buffer.byteLength(requestBody.text) > maxRequestBytes)
    throw invalidParameter('', `make a body of more than ${maxRequestBytes} bytes`);
  return requestBody;
}

function encodeBody(
  { body, bodyFrom, formStyle, formStyles }: Connector,
  content: unknown,
  styles: ReadonlyMap<string, ParameterStyle>,
): RequestBody {
  if (body === 'json') return { type: 'application/json', text: JSON.stringify(content) };
  if (body === 'text')
    return {
      type: 'text/plain; charset=utf-8',
      text: typeof content === 'string' ? content : JSON.stringify(content),
    };
  if (!isObject(content))
    throw invalidParameter(bodyFrom ?? '', `must be an object, whose members are the form; got ${quoteValue(content)}`);
  const form = content;
  const isReserved = (name: string) => Object.hasOwn(form, name);
  const fields = membersOf(form).flatMap(([name, value]) =>
    pairsOf(
      { param: name, name, style: styles.get(name) ?? ownMember(formStyles, name) ?? formStyle, isReserved },
      value,
    ),
  );
  return { type: 'application/x-www-form-urlencoded', text: joinPairs(fields) };
}

function headerText(name: string, text: string): string {
  if (/[^\t\x20-\x7e\x80-\xff]/.test(text))
    throw invalidParameter(name, 'holds characters that cannot stand in a header');
  return text;
}

/** An own member only, and not an inherited one such as `constructor`. */
function ownMember<Value>(members: Readonly<Record<string, Value>>, name: string): Value | undefined {
  return Object.hasOwn(members, name) ? members[name] : undefined;
}
