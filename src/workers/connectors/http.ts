/** Runs HTTP connectors: one request, or the pages of one, and of the answer what the declaration says (I8, I17). */
import { isUtf8 } from 'node:buffer';
import type { Connector } from '../../shared/connectors/connector.ts';
import { type ConnectorRequest, requireAllowed, connectorRequest } from '../../shared/connectors/connector-request.ts';
import type { DeclaredToolOf } from '../../shared/connectors/declared-tool.ts';
import { evaluateExpression, isEmpty } from '../../shared/connectors/jmespath.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { FleetLimit } from '../../shared/store/limits/concurrency-limits.ts';
import { qualifiedName, type ToolContext, type ToolResult } from '../../shared/tools/tool.ts';
import { decodeDocument } from '../../shared/util/text/charset.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { isForAnyOrigin } from '../context/network.ts';
import type { Executable } from './declared-tools.ts';
import type { ConnectorSecrets } from './secrets.ts';

export interface HttpConnectorDeps {
  readonly secrets: Pick<ConnectorSecrets, 'resolve'>;
  /**
   * Resolves when one more request of a call may be sent, with what to call when it has ended. The first one is paced by whoever
   * starts the call.
   */
  anotherRequest(limit: FleetLimit, ctx: ToolContext): Promise<() => Promise<void>>;
}

const MAX_REDIRECTS = 5;
const QUOTED_LENGTH = 500;
const HIDDEN = '[secret]';
const MAX_DEPTH = 1_000;
const JSON_TYPE = /[/+]json\b/;
const BINARY_TYPE = /^(?:image|audio|video|font)\/|octet-stream|zip|pdf/;
/** Of gzip and deflate, and of Brotli. */
const ZLIB_FAULT = /^(?:Z_|ERR__)/;
const TEXT_TYPE = /^text\/|[/+](?:json|xml)\b|charset/;

const nothing = async () => {};

type Params = Readonly<Record<string, unknown>>;
type Secrets = ReadonlyMap<string, string>;

export function httpConnector(parts: HttpConnectorDeps) {
  return (record: DeclaredToolOf<'http'>): Executable & { readonly limit?: FleetLimit } => {
    const connector = record.routing;
    const limit = limitOf(record);
    return {
      needs: ['network'],
      ...(limit === undefined ? {} : { limit }),
      preview: (params: Params) => {
        const { method, url, body } = connectorRequest(connector, params);
        return { summary: `${method} ${url.href}`, ...(body === undefined ? {} : { details: body }) };
      },
      run: async (params: Params, ctx: ToolContext) => {
        const request = connectorRequest(connector, params);
        const secrets = await parts.secrets.resolve(connector.secrets);
        const exchange = new Exchange(connector, secrets, ctx);
        if (connector.pagination === undefined) return exchange.single(request);
        const another = limit === undefined ? async () => nothing : () => parts.anotherRequest(limit, ctx);
        return exchange.pages(request, connector.pagination, another);
      },
    };
  };
}

function limitOf(record: DeclaredToolOf<'http'>): FleetLimit | undefined {
  const { credential, concurrency, perSecond } = record.routing.limits;
  if (concurrency === undefined && perSecond === undefined) return undefined;
  return {
    name: credential === undefined ? `tool:${qualifiedName(record)}` : `credential:${credential}`,
    concurrency,
    perSecond,
  };
}

interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly content: unknown;
}

/** The requests of one call. */
class Exchange {
  readonly #connector: Connector;
  readonly #secrets: Secrets;
  readonly #secretForms: readonly string[];
  readonly #ctx: ToolContext;

  constructor(connector: Connector, secrets: Secrets, ctx: ToolContext) {
    this.#connector = connector;
    this.#secrets = secrets;
    this.#secretForms = [...new Set([...secrets.values()].flatMap(formsOf))];
    this.#ctx = ctx;
  }

  async single(request: ConnectorRequest): Promise<ToolResult<unknown>> {
    const { status, content } = await this.#ask(request, this.#addressOf(request));
    const accepted = status >= 300;
    const output = accepted ? { status, body: content } : this.#mapped(content, status);
    return { output, display: `${request.method} ${request.url.host}${request.url.pathname}: ${status}` };
  }

  async pages(
    request: ConnectorRequest,
    pagination: NonNullable<Connector['pagination']>,
    another: () => Promise<() => Promise<void>>,
  ): Promise<ToolResult<unknown>> {
    const items: unknown[] = [];
    let url: URL | undefined = this.#addressOf(request);
    let pages = 0;
    if (pagination.by === 'page') url.searchParams.set(pagination.parameter, String(pagination.first));
    while (url !== undefined && pages < pagination.maxPages && items.length < pagination.maxItems) {
      const ended = pages === 0 ? nothing : await another();
      const answered: Answered = await this.#ask(request, url).finally(ended);
      pages += 1;
      const found =
        pagination.items === undefined ? answered.content : evaluateExpression(pagination.items, answered.content);
      if (!Array.isArray(found))
        throw new PawlError(
          'RESULT_INVALID',
          `Page ${pages} of ${url.host} holds no list${pagination.items === undefined ? '' : ` at ${pagination.items}`}.`,
        );
      items.push(...found);
      this.#ctx.progress({ progress: items.length, message: `${pages} pages` });
      url = this.#nextPage(url, pagination, answered, found, pages);
      // Services leave the key out of the addresses that they name.
      if (url !== undefined) this.#addSecrets(url, request.secretQuery);
    }
    const truncated = url !== undefined || items.length > pagination.maxItems;
    const kept = items.slice(0, pagination.maxItems);
    const { result } = this.#connector;
    return {
      output: { items: result === undefined ? kept : evaluateExpression(result, kept), truncated },
      display: `${kept.length} entries of ${pages} pages${truncated ? ', and there are more' : ''}`,
    };
  }

  /** Where the next page is; undefined after the last one. */
  #nextPage(
    url: URL,
    pagination: NonNullable<Connector['pagination']>,
    { headers, content }: Answered,
    found: readonly unknown[],
    pages: number,
  ): URL | undefined {
    const at = (address: string) => {
      if (!URL.canParse(address, url.href))
        throw new PawlError('RESULT_INVALID', `${url.host} names a next page that is no address.`);
      const next = new URL(address, url.href);
      if (next.origin !== url.origin)
        throw new PawlError('PERMISSION_DENIED', `${url.host} names a next page on another host, ${next.host}.`);
      requireAllowed(this.#connector, next);
      return next;
    };
    switch (pagination.by) {
      case 'link': {
        const next = nextLink(headers.get('link') ?? '');
        return next === undefined ? undefined : at(next);
      }
      case 'cursor': {
        const cursor = evaluateExpression(pagination.cursor, content);
        if (isEmpty(cursor) || cursor === false) return undefined;
        if (pagination.parameter === undefined) return at(String(cursor));
        const next = new URL(url.href);
        next.searchParams.set(pagination.parameter, String(cursor));
        return next;
      }
      case 'page': {
        if (found.length === 0) return undefined;
        const next = new URL(url.href);
        next.searchParams.set(pagination.parameter, String(pagination.first + pages));
        return next;
      }
    }
  }

  #mapped(content: unknown, status: number): unknown {
    const { result } = this.#connector;
    if (content === undefined) return { status };
    return result === undefined ? content : evaluateExpression(result, content);
  }

  #addressOf({ url, secretQuery }: ConnectorRequest): URL {
    const address = new URL(url.href);
    this.#addSecrets(address, secretQuery);
    return address;
  }

  #addSecrets(address: URL, secretQuery: ConnectorRequest['secretQuery']): void {
    for (const [name, template] of Object.entries(secretQuery)) address.searchParams.set(name, this.#filled(template));
  }

  #filled(template: string): string {
    return template.replaceAll(/\{secret:([^{}]*)\}/g, (_placeholder, name: string) => this.#secrets.get(name) ?? '');
  }

  /** Credentials of the scheme Basic are written in Base64, in which there is no colon: a secret that has one is not written so yet. */
  #headerText(template: string): string {
    const text = this.#filled(template);
    const credentials = text.slice('Basic '.length);
    if (!/^Basic \{secret:[^{}]*\}$/i.test(template) || !credentials.includes(':')) return text;
    return `Basic ${Buffer.from(credentials).toString('base64')}`;
  }

  /** One request, and where a read is redirected within the allow list, those that follow. */
  async #ask(request: ConnectorRequest, url: URL): Promise<Answered> {
    const { method, body } = request;
    const { idempotencyHeader, maxResponseBytes, accept } = this.#connector;
    const given = Object.entries(request.headers).map(
      ([name, template]): readonly [name: string, text: string, template: string] => [
        name,
        this.#headerText(template),
        template,
      ],
    );
    if (idempotencyHeader !== undefined) given.push([idempotencyHeader, this.#ctx.idempotencyKey, '']);
    let left = false;
    for (let at = url, redirects = 0; ; redirects += 1) {
      // What was meant for the first origin goes to no other one, and not back to where another one points.
      left ||= at.origin !== url.origin;
      const sent = given.filter(
        ([name, , template]) => !left || (isForAnyOrigin(name) && !template.includes('{secret:')),
      );
      const response = await this.#sent(at, {
        method,
        redirect: 'manual',
        headers: Object.fromEntries(sent.map(([name, text]) => [name, text])),
        ...(body === undefined ? {} : { body }),
      });
      const location = response.headers.get('location');
      const moved = [301, 302, 303, 307, 308].includes(response.status) && !accept.includes(response.status);
      if (moved && location !== null && ['GET', 'HEAD'].includes(method) && redirects < MAX_REDIRECTS) {
        await response.body?.cancel();
        at = this.#redirected(at, location);
        continue;
      }
      const content = await this.#read(response, maxResponseBytes);
      if (!response.ok && !accept.includes(response.status)) throw this.#failure(method, at, response, content);
      return { status: response.status, headers: response.headers, content };
    }
  }

  #redirected(from: URL, location: string): URL {
    if (!URL.canParse(location, from.href))
      throw new PawlError('HTTP_5XX', `${from.host} redirects to what is no address.`);
    const to = new URL(location, from.href);
    requireAllowed(this.#connector, to);
    return to;
  }

  #sent(url: URL, init: RequestInit): Promise<Response> {
    return this.#withoutSecrets(this.#ctx.fetch(url, init));
  }

  async #withoutSecrets<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      // The address may hold a secret.
      if (error instanceof Error) error.message = this.#clean(error.message);
      throw error;
    }
  }

  async #read(response: Response, maxBytes: number): Promise<unknown> {
    const type = (response.headers.get('content-type') ?? '').toLowerCase();
    const bytes = await this.#withoutSecrets(bytesOf(response, maxBytes));
    if (bytes.length === 0) return undefined;
    if (BINARY_TYPE.test(type) || (!TEXT_TYPE.test(type) && isBinary(bytes)))
      return {
        mediaType: type.split(';')[0] || 'application/octet-stream',
        base64: Buffer.from(bytes).toString('base64'),
      };
    const text = decodeDocument(bytes, type);
    const isJson = JSON_TYPE.test(type);
    // Many services say that their JSON is plain text; whoever declares a part of it knows better.
    const { result, pagination } = this.#connector;
    if (!isJson && result === undefined && pagination === undefined) return this.#clean(text);
    let content: unknown;
    try {
      content = parsedJson(text);
    } catch {
      if (!isJson || !response.ok) return this.#clean(text);
      throw new PawlError('RESULT_INVALID', 'The service says that its answer is JSON, and it is not.');
    }
    return this.#cleaned(content);
  }

  /** A service may send back what it was sent. */
  #clean(text: string): string {
    return this.#secretForms.reduce((clean, form) => clean.replaceAll(form, HIDDEN), text);
  }

  /** Of what was parsed: JSON has many ways to write a character. */
  #cleaned(content: unknown, depth = 0): unknown {
    if (this.#secretForms.length === 0) return content;
    if (depth > MAX_DEPTH)
      throw new PawlError('RESULT_INVALID', `The answer is nested more than ${MAX_DEPTH} levels deep.`);
    if (typeof content === 'string') return this.#clean(content);
    if (typeof content === 'number') return this.#secretForms.includes(String(content)) ? HIDDEN : content;
    if (Array.isArray(content)) return content.map((entry) => this.#cleaned(entry, depth + 1));
    if (typeof content !== 'object' || content === null) return content;
    return Object.fromEntries(
      Object.entries(content).map(([name, member]) => [this.#clean(name), this.#cleaned(member, depth + 1)]),
    );
  }

  /** Classified by its status and `Retry-After`, as any tool's error is. */
  #failure(method: string, url: URL, { status, headers }: Response, content: unknown): Error {
    const said = typeof content === 'string' ? content : (JSON.stringify(content) ?? '');
    const quoted = said === '' ? '' : `: ${startOf(said, QUOTED_LENGTH)}`;
    const location = headers.get('location');
    const moved = status < 400 && location !== null ? `, a redirect to ${this.#clean(location)}` : '';
    return Object.assign(new Error(`${method} ${url.host}${url.pathname} answers ${status}${moved}${quoted}`), {
      status,
      headers,
    });
  }
}

/** As it is, in a path, in a query, in JSON, and as credentials. */
function formsOf(secret: string): readonly string[] {
  if (secret === '') return [];
  const inQuery = new URLSearchParams({ s: secret }).toString().slice(2);
  const inBase64 = Buffer.from(secret).toString('base64');
  return [secret, encodeURIComponent(secret), inQuery, JSON.stringify(secret).slice(1, -1), inBase64];
}

/** The address with `next` among its relations, in a `Link` header (RFC 8288). */
function nextLink(header: string): string | undefined {
  const links = header.matchAll(/<([^>]*)>((?:\s*;\s*[^\s=;,]+(?:\s*=\s*(?:"[^"]*"|[^\s;,"]*))?)*)/g);
  for (const [, address, parameters = ''] of links) {
    const [, quoted, bare = ''] = /;\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]*))/i.exec(parameters) ?? [];
    if ((quoted ?? bare).toLowerCase().split(/\s+/).includes('next')) return address;
  }
  return undefined;
}

/** What no text holds. */
function isBinary(bytes: Uint8Array): boolean {
  return bytes.includes(0) || !isUtf8(bytes);
}

/** A whole number of more digits than a number holds becomes a text of all of them: an ID with other digits names something else. */
function parsedJson(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_key, value: unknown, { source = '' }: { readonly source?: string } = {}) =>
    typeof value === 'number' && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? source : value,
  );
}

async function bytesOf(response: Response, maxBytes: number): Promise<Uint8Array> {
  if (response.body === null) return new Uint8Array();
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of response.body) {
      size += chunk.length;
      if (size > maxBytes)
        throw new PawlError(
          'RESULT_TOO_LARGE',
          `The answer is larger than the ${maxBytes} bytes that the connector takes.`,
        );
      chunks.push(chunk);
    }
  } catch (error) {
    if (!ZLIB_FAULT.test(String((error as NodeJS.ErrnoException).code))) throw error;
    const encoding = response.headers.get('content-encoding');
    throw new PawlError(
      'RESULT_INVALID',
      `The service says that its answer is compressed (${encoding}), and it is not.`,
    );
  }
  return Buffer.concat(chunks);
}
