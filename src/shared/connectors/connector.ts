/**
 * HTTP connectors: one declared request for each capability. The model supplies the parameters that the declaration names, and nothing
 * else. Host, method and path belong to the operator.
 */
import { z } from 'zod';
import { limitSettingsSchema } from '../limits/concurrency-limit.ts';
import { hostInUrl, hostNamesOf } from '../util/hosts.ts';
import { startOf } from '../util/text/text-cut.ts';
import { expressionFault } from './jmespath.ts';
import { parameterStyleSchema } from './parameter-style.ts';

const CONNECTOR_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;
const MEBIBYTE = 1_024 * 1_024;
const MAX_BODY_BYTES = 16 * MEBIBYTE;
const bodyBytes = z.number().int().min(1).max(MAX_BODY_BYTES);
const name = z.string().min(1).max(256);
export const headerName = z.string().regex(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/, 'must be a header name');
const expression = z
  .string()
  .min(1)
  .max(4_096)
  .superRefine((text, context) => {
    const fault = expressionFault(text);
    if (fault !== undefined) context.addIssue({ code: 'custom', message: `must be a JMESPath expression: ${fault}` });
  });
/** Text that may contain `{parameter}` and `{secret:NAME}`. */
const template = z.string().max(8_192);

/** The value of an environment variable of the worker. */
export const variableSchema = z.strictObject({
  env: z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'must be the name of an environment variable'),
});

/** The source of a secret in the worker. The worker's own configuration decides which sources it reads (`connectors.secrets`). */
const secretSchema = z.union([
  variableSchema,
  z.strictObject({ file: z.string().startsWith('/', 'must be an absolute path') }),
  z.strictObject({ exec: z.tuple([z.string().startsWith('/', 'must be an absolute path')]).rest(z.string()) }),
]);
export type SecretSource = z.output<typeof secretSchema>;

/** Headers that say where a message goes and where it ends. The transport writes them. */
export function isTransportHeader(header: string): boolean {
  return /^(?:host|content-length|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect|proxy-.*)$/i.test(
    header,
  );
}

const argumentSchema = z.strictObject({
  in: z.enum(['path', 'query', 'header', 'body']),
  /** The name in the service's API. Default: the parameter's own name. */
  name: name.optional(),
  /** The encoding of a list or an object in the query, or in a form. */
  style: parameterStyleSchema.default('repeat'),
});
export type ConnectorArgument = z.output<typeof argumentSchema>;

const paginationSchema = z.discriminatedUnion('by', [
  /** The `Link` header has the address of the next page, as `rel="next"`. */
  z.strictObject({ by: z.literal('link'), items: expression.optional(), maxPages: pages(), maxItems: items() }),
  /** The answer has the next page's cursor, or its address. */
  z.strictObject({
    by: z.literal('cursor'),
    items: expression,
    /** The JMESPath of the cursor; absent, null or empty on the last page. */
    cursor: expression,
    /** The query parameter for the cursor; without one, the cursor is an address. */
    parameter: name.optional(),
    maxPages: pages(),
    maxItems: items(),
  }),
  /** Pages are counted; an empty one is the last. */
  z.strictObject({
    by: z.literal('page'),
    items: expression,
    parameter: name,
    first: z.number().int().min(0).default(1),
    maxPages: pages(),
    maxItems: items(),
  }),
]);
function pages() {
  return z.number().int().min(1).max(100).default(5);
}
function items() {
  return z.number().int().min(1).max(100_000).default(1_000);
}

const connectorShape = z.strictObject({
  method: z.enum(CONNECTOR_METHODS),
  /** `https://api.example.com/repos/{owner}/{repo}`: only the path may contain placeholders. */
  url: z.string().max(4_096),
  /** These are always sent. */
  query: z.record(name, template).default({}),
  headers: z.record(headerName, template).default({}),
  secrets: z.record(z.string().regex(/^[A-Za-z][A-Za-z0-9_-]*$/), secretSchema).default({}),
  /**
   * The places of parameters. A parameter that is not listed goes into the path if that has its name, else into the query or the body.
   */
  arguments: z.record(name, argumentSchema).default({}),
  body: z.enum(['json', 'form', 'text', 'none']).default('json'),
  /** The one parameter whose value is the whole body. */
  bodyFrom: name.optional(),
  formStyle: parameterStyleSchema.default('repeat'),
  /** The styles of single members of that form. */
  formStyles: z.record(name, parameterStyleSchema).default({}),
  /** JMESPath over the answer's JSON, which selects what the model gets. */
  result: expression.optional(),
  pagination: paginationSchema.optional(),
  /** The only hosts that may be requested, redirects included; `*.example.com` for all below. Default: the URL's own. */
  allow: z
    .strictObject({
      hosts: z.array(z.string().min(1)).min(1),
      methods: z.array(z.enum(CONNECTOR_METHODS)).min(1),
      /** Patterns in which `*` stands for any text. */
      paths: z.array(z.string().startsWith('/')).min(1),
    })
    .partial()
    .default({}),
  /** Fleet-wide limits; connectors that name one credential share its limits. */
  limits: limitSettingsSchema.extend({ credential: name.optional() }).default({}),
  maxRequestBytes: bodyBytes.default(MEBIBYTE),
  maxResponseBytes: bodyBytes.default(4 * MEBIBYTE),
  /** The header for the call's idempotency key, if the service supports such keys. */
  idempotencyHeader: headerName.optional(),
  /** Statuses outside 2xx that are answers and not failures: the model gets what the service returns. */
  accept: z.array(z.number().int().min(300).max(499)).default([]),
});

/** The `routing` of a declared tool of kind `http`. */
export const connectorSchema = connectorShape.superRefine((connector, context) => {
  for (const { path, message } of connectorFaults(connector)) context.addIssue({ code: 'custom', path, message });
});
export type Connector = z.output<typeof connectorSchema>;

const PLACEHOLDER = /\{([^{}]*)\}/g;

/** Faults that the shape of the schema cannot express. */
function connectorFaults(connector: z.output<typeof connectorShape>): { path: string[]; message: string }[] {
  const { method, url, headers, query, secrets, allow } = connector;
  const faults: { path: string[]; message: string }[] = [];
  const fault = (path: string[], message: string) => faults.push({ path, message });
  const sampleUrl = url.replaceAll(PLACEHOLDER, 'x');
  const parsed = URL.canParse(sampleUrl) ? new URL(sampleUrl) : undefined;
  if (parsed === undefined || !['http:', 'https:'].includes(parsed.protocol))
    fault(['url'], `must be an http: or https: address; got ${JSON.stringify(startOf(url, 200))}`);
  else {
    if (/\{/.test(originOf(url))) fault(['url'], 'must name its host: placeholders stand in the path alone');
    if (/[?#]/.test(url))
      fault(['url'], 'must have no query and no fragment: `query` and `arguments` say what is sent');
    if (parsed.username !== '' || parsed.password !== '')
      fault(['url'], 'must hold no credentials: use a header with {secret:NAME}');
    if (allow.hosts !== undefined && !allow.hosts.some((pattern) => hostMatches(pattern, parsed)))
      fault(['allow', 'hosts'], `must contain the host of the URL, ${parsed.host}`);
  }
  if (allow.methods !== undefined && !allow.methods.includes(method))
    fault(['allow', 'methods'], `must contain the method, ${method}`);
  const declared: readonly (readonly [header: string, ...path: string[]])[] = [
    ...Object.keys(headers).map((header) => [header, 'headers', header] as const),
    ...Object.entries(connector.arguments).map(
      ([key, { in: location, name: header = key }]) => [location === 'header' ? header : '', 'arguments', key] as const,
    ),
    [connector.idempotencyHeader ?? '', 'idempotencyHeader'],
  ];
  for (const [header, ...path] of declared)
    if (isTransportHeader(header)) fault(path, `sets the header ${header}, which the transport writes`);
  for (const [field, templates] of Object.entries({ headers, query }))
    for (const [key, text] of Object.entries(templates))
      for (const placeholder of placeholders(text)) {
        const [, secret] = /^secret:(.*)$/s.exec(placeholder) ?? [];
        if (secret !== undefined && !Object.hasOwn(secrets, secret))
          fault([field, key], `names the secret ${secret}, which secrets does not declare`);
      }
  return faults;
}

function placeholders(text: string): string[] {
  return [...text.matchAll(PLACEHOLDER)].map(([, placeholder = '']) => placeholder);
}

/** The path and the name of each placeholder that stands for a parameter. */
export function placeholdersOf({ url, query, headers }: Pick<Connector, 'url' | 'query' | 'headers'>) {
  const templates = [['url', url]];
  for (const [name, text] of Object.entries(query)) templates.push([`query.${name}`, text]);
  for (const [name, text] of Object.entries(headers)) templates.push([`headers.${name}`, text]);
  return templates.flatMap(([path, text = '']) =>
    placeholders(text).flatMap((name): [string, string][] =>
      name.startsWith('secret:') ? [] : [[`routing.${path}`, name]],
    ),
  );
}

/** Scheme and authority of a template, up to the first slash of its path. */
function originOf(url: string): string {
  return /^[a-z]+:\/\/[^/?#]*/i.exec(url)?.[0] ?? url;
}

/** `host`, or `*.domain` for all names below a domain; either with `:port`, too. */
export function hostMatches(pattern: string, url: URL): boolean {
  const allowed = hostInUrl(pattern);
  const names = hostNamesOf(url);
  if (!allowed.startsWith('*.')) return names.includes(allowed);
  const domain = allowed.slice(1);
  return names.some((name) => name.endsWith(domain) && name.length > domain.length);
}
