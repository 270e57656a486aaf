/**
 * The one request that a connector's parameters make (I14, I16). Pure; secrets are filled in where the request is sent. Parameters
 * are data: none of them can change the host, climb out of the path, or end a header.
 */

import { PawlError } from '../errors/failure.ts';
import { matches } from '../util/wildcard.ts';
import { type Connector, type ConnectorArgument, hostMatches } from './connector.ts';
import { invalidParameter, joinedText, membersOf, type ParameterStyle, pairsOf, plainText } from './parameter-style.ts';

export interface ConnectorRequest {
  readonly method: string;
  readonly url: URL;
  /** `{secret:NAME}` still stands in the values. */
  readonly headers: Readonly<Record<string, string>>;
  readonly secretQuery: Readonly<Record<string, string>>;
  readonly body?: string;
}

type Params = Readonly<Record<string, unknown>>;

const PLACEHOLDER = /\{([^{}]*)\}/g;
const SECRET = '{secret:';
const BODILESS = ['GET', 'HEAD', 'DELETE'];

/** Throws `INVALID_PARAMS` for parameters that make no request, and `PERMISSION_DENIED` for one that the allow list leaves out. */
export function connectorRequest(connector: Connector, params: Params): ConnectorRequest {
  const { method } = connector;
  const url = new URL(filledPath(connector.url, params));
  const placed = placeholderNames(connector);
  // Members of any name, `__proto__` too, are put together at the end: an assignment would lose that one.
  const body = new Map<string, unknown>();
  const styles = new Map<string, ParameterStyle>();
  const isInQuery = (name: string) => queryNames(connector).includes(name);
  const headers = new Map<string, string>();
  for (const [param, value] of Object.entries(params)) {
    const argument = ownMember(connector.arguments, param) ?? defaultArgument(connector, param, placed);
    // In a JSON body null is a value: many services clear a field by it.
    if (value === undefined || (value === null && !(argument?.in === 'body' && connector.body === 'json'))) continue;
    const name = argument?.name ?? param;
    switch (argument?.in) {
      case 'query':
        for (const [key, text] of pairsOf(param, name, value, argument.style, isInQuery))
          url.searchParams.append(key, text);
        break;
      case 'header':
        headers.set(name.toLowerCase(), headerText(param, withoutPlaceholders(headerValue(param, value, argument))));
        break;
      case 'body':
        body.set(name, value);
        styles.set(name, argument.style);
        break;
      default:
        // It stands in the path, or in a template.
        break;
    }
  }
  const secretQuery = new Map<string, string>();
  for (const [name, template] of Object.entries(connector.query)) {
    const text = filled(template, params);
    if (text?.includes('{secret:') === true) secretQuery.set(name, text);
    else if (text !== undefined) url.searchParams.set(name, text);
  }
  for (const [name, template] of Object.entries(connector.headers)) {
    const text = filled(template, params);
    if (text !== undefined) headers.set(name.toLowerCase(), headerText(name, text));
  }
  const made = bodyOf(connector, params, Object.fromEntries(body), styles);
  if (
    made !== undefined &&
    made.text.length * 3 > connector.maxRequestBytes &&
    byteLength(made.text) > connector.maxRequestBytes
  )
    throw invalidParameter('', `make a body of more than ${connector.maxRequestBytes} bytes`);
  // Services refuse the type of a body that is not there.
  if (made === undefined) headers.delete('content-type');
  requireAllowed(connector, url);
  return {
    method,
    url,
    headers: {
      accept: 'application/json, text/*;q=0.9, */*;q=0.1',
      ...(made === undefined ? {} : { 'content-type': made.type }),
      ...Object.fromEntries(headers),
    },
    secretQuery: Object.fromEntries(secretQuery),
    ...(made === undefined ? {} : { body: made.text }),
  };
}

/** Whether a connector may ask this address. Throws `PERMISSION_DENIED`. */
export function requireAllowed({ url: own, method, allow }: Connector, url: URL): void {
  const hosts = allow.hosts ?? [new URL(own.replaceAll(PLACEHOLDER, 'x')).host];
  const refuse = (what: string) => {
    throw new PawlError('PERMISSION_DENIED', `The connector may not ask ${url.origin}${url.pathname}: ${what}.`);
  };
  if (url.protocol !== 'https:' && url.protocol !== new URL(own.replaceAll(PLACEHOLDER, 'x')).protocol)
    refuse(`${url.protocol}// is not what it was declared with`);
  if (!hosts.some((pattern) => hostMatches(pattern, url))) refuse('its host is not on the list');
  if (allow.methods !== undefined && !(allow.methods as readonly string[]).includes(method))
    refuse('the method is not on the list');
  if (allow.paths !== undefined && !allow.paths.some((pattern) => matches(pattern, url.pathname)))
    refuse('its path is not on the list');
}

/** Where a parameter goes that the declaration does not mention; undefined for one that a template uses. */
function defaultArgument(
  connector: Connector,
  param: string,
  placed: ReadonlySet<string>,
): ConnectorArgument | undefined {
  if (placed.has(param) || connector.bodyFrom === param) return undefined;
  const inBody = !BODILESS.includes(connector.method) && connector.body !== 'none' && connector.bodyFrom === undefined;
  return { in: inBody ? 'body' : 'query', style: 'repeat' };
}

/** Names in the query that the declaration has a meaning for. */
function queryNames({ arguments: mapped, query, pagination }: Connector): readonly string[] {
  const own = Object.entries(mapped).flatMap(([param, { in: place, name = param }]) =>
    place === 'query' ? [name] : [],
  );
  const page = pagination !== undefined && 'parameter' in pagination ? (pagination.parameter ?? []) : [];
  return [...Object.keys(query), ...own].concat(page);
}

/** Names of parameters that stand in a template. */
function placeholderNames({ url, query, headers }: Connector): ReadonlySet<string> {
  const texts = [url, ...Object.values(query), ...Object.values(headers)];
  return new Set(texts.flatMap((text) => [...text.matchAll(PLACEHOLDER)].map(([, name = '']) => name)));
}

function filledPath(template: string, params: Params): string {
  return template.replaceAll(PLACEHOLDER, (_placeholder, name: string) => {
    const value = ownMember(params, name);
    if (value === undefined || value === null) throw invalidParameter(name, 'is needed for the path and missing');
    const text = joinedText(name, value, ',');
    // A dot segment would climb out of the path, encoded or not.
    if (text === '' || text === '.' || text === '..')
      throw invalidParameter(name, `cannot stand in a path: ${JSON.stringify(text)}`);
    return encodeURIComponent(text);
  });
}

/** A template with its parameters filled in; undefined when one that it needs is missing. */
function filled(template: string, params: Params): string | undefined {
  let missing = false;
  const text = template.replaceAll(PLACEHOLDER, (placeholder, name: string) => {
    if (name.startsWith('secret:')) return placeholder;
    const value = ownMember(params, name);
    if (value === undefined || value === null) missing = true;
    return missing ? '' : withoutPlaceholders(plainText(name, value));
  });
  if (!missing && text.split(SECRET).length !== template.split(SECRET).length)
    throw invalidParameter('', `name a secret together, in ${JSON.stringify(template)}`);
  return missing ? undefined : text;
}

/** What a parameter says is text, and never a placeholder: secrets are filled into what is made here. */
function withoutPlaceholders(text: string): string {
  return text.replaceAll(SECRET, '{ secret:');
}

function headerValue(param: string, value: unknown, { style }: ConnectorArgument): string {
  if (style !== 'json') return joinedText(param, value, ',');
  // A header takes no other characters; JSON can say them with these.
  return JSON.stringify(value).replaceAll(
    /[^\x20-\x7e]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

function bodyOf(
  { method, body, bodyFrom, formStyle }: Connector,
  params: Params,
  members: Readonly<Record<string, unknown>>,
  styles: ReadonlyMap<string, ParameterStyle>,
): { readonly type: string; readonly text: string } | undefined {
  const whole = bodyFrom === undefined ? undefined : ownMember(params, bodyFrom);
  const empty = bodyFrom === undefined ? Object.keys(members).length === 0 : whole === undefined;
  if (body === 'none' || (empty && (BODILESS.includes(method) || bodyFrom !== undefined))) return undefined;
  switch (body) {
    case 'json':
      return { type: 'application/json', text: JSON.stringify(bodyFrom === undefined ? members : whole) };
    case 'form': {
      const form = (bodyFrom === undefined ? members : whole) as object;
      const isTaken = (name: string) => Object.hasOwn(form, name);
      const fields = membersOf(form).flatMap(([name, value]) =>
        pairsOf(name, name, value, styles.get(name) ?? formStyle, isTaken),
      );
      return {
        type: 'application/x-www-form-urlencoded',
        text: new URLSearchParams(fields).toString(),
      };
    }
    case 'text':
      return {
        type: 'text/plain; charset=utf-8',
        text: typeof whole === 'string' ? whole : JSON.stringify(whole ?? members),
      };
  }
}

function headerText(name: string, text: string): string {
  if (/[^\t\x20-\x7e\x80-\xff]/.test(text))
    throw invalidParameter(name, 'holds characters that cannot stand in a header');
  return text;
}

/** Not what every object inherits, such as `constructor`. */
function ownMember<Value>(members: Readonly<Record<string, Value>>, name: string): Value | undefined {
  return Object.hasOwn(members, name) ? members[name] : undefined;
}

function byteLength(text: string): number {
  return new TextEncoder().encode(text).length;
}
