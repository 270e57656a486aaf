/** Runs HTTP connectors: sends one request, or one per page, and extracts from the answers what the declaration names. */
import { isUtf8 } from 'node:buffer';
import type { Connector } from '../../shared/connectors/connector.ts';
import { type ConnectorRequest, connectorRequest, requireAllowed } from '../../shared/connectors/connector-request.ts';
import type { DeclaredToolOf } from '../../shared/connectors/declared-tool.ts';
import { evaluateExpression } from '../../shared/connectors/jmespath.ts';
import { setQueryParameter } from '../../shared/connectors/parameter-style.ts';
import { PawlError, statusError } from '../../shared/errors/failure.ts';
import type { NamedLimit } from '../../shared/limits/concurrency-limit.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import type { ToolContext } from '../../shared/tools/tool-context.ts';
import type { ToolResult } from '../../shared/tools/tool-result.ts';
import { parseWithLongNumbersAsText } from '../../shared/util/json/exact-json.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';
import { readErrorPage, readUpTo } from '../../shared/util/read-body.ts';
import { decodeDocument, lastContentType } from '../../shared/util/text/charset.ts';
import { asText } from '../../shared/util/text/quote-value.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { isForAnyOrigin } from '../context/network.ts';
import type { Executable } from './declared-tools.ts';
import type { ConnectorSecrets } from './secrets.ts';

interface HttpConnectorDeps {
  readonly secrets: Pick<ConnectorSecrets, 'resolve'>;
  /**
   * Resolves when the call may send one more request, with a function to call when that request has ended. The first
   * request is limited by the start of the call itself.
   */
  anotherRequest(limit: NamedLimit, ctx: ToolContext): Promise<() => Promise<void>>;
}

const MAX_REDIRECTS = 5;
const QUOTED_LENGTH = 500;
const REDACTED = '[secret]';
const MAX_DEPTH = 1_000;
const JSON_TYPE = /[/+]json\b/;
const BINARY_TYPE = /^(?:image|audio|video|font)\/|octet-stream|zip|pdf/;
const TEXT_TYPE = /^text\/|[/+](?:json|xml)\b|charset/;

const noRelease = async () => {};

type Params = Readonly<Record<string, unknown>>;
type Secrets = ReadonlyMap<string, string>;

export function httpConnector(deps: HttpConnectorDeps) {
  return (record: DeclaredToolOf<'http'>): Executable & { readonly limit?: NamedLimit } => {
    const connector = record.routing;
    const limit = limitOf(record);
    return {
      needs: ['network'],
      ...(limit !== undefined && { limit }),
      preview: (params: Params) => {
        const { method, url, body } = connectorRequest(connector, params);
        return { summary: `${method} ${url.href}`, ...(body !== undefined && { details: body }) };
      },
      run: async (params: Params, ctx: ToolContext) => {
        const request = connectorRequest(connector, params);
        const secrets = await deps.secrets.resolve(connector.secrets);
        const exchange = new Exchange(connector, secrets, ctx);
        if (connector.pagination === undefined) return exchange.single(request);
        const startNextRequest = limit === undefined ? async () => noRelease : () => deps.anotherRequest(limit, ctx);
        return exchange.pages(request, connector.pagination, startNextRequest);
      },
    };
  };
}

function limitOf(record: DeclaredToolOf<'http'>): NamedLimit | undefined {
  const { credential, concurrency, perSecond } = record.routing.limits;
  if (concurrency === undefined && perSecond === undefined) return undefined;
  return {
    name: credential === undefined ? `tool:${qualifiedName(record)}` : `credential:${credential}`,
    concurrency,
    perSecond,
  };
}

interface ServiceResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly content: unknown;
}

class Exchange {
  readonly #connector: Connector;
  readonly #secrets: Secrets;
  readonly #secretForms: readonly string[];
  readonly #ctx: ToolContext;

  constructor(connector: Connector, secrets: Secrets, ctx: ToolContext) {
    this.#connector = connector;
    this.#secrets = secrets;
    this.#secretForms = [...new Set([...secrets.values()].flatMap(secretForms))];
    this.#ctx = ctx;
  }

  async single(request: ConnectorRequest): Promise<ToolResult<unknown>> {
    const { status, content } = await this.#send(request, this.#urlWithSecrets(request));
    const accepted = status >= 300;
    const output = accepted ? { status, body: content } : this.#mapResult(content, status);
    return { output };
  }

  async pages(
    request: ConnectorRequest,
    pagination: NonNullable<Connector['pagination']>,
    startNextRequest: () => Promise<() => Promise<void>>,
  ): Promise<ToolResult<unknown>> {
    const items: unknown[] = [];
    let url: URL | undefined = this.#urlWithSecrets(request);
    let pages = 0;
    if (pagination.by === 'page') setQueryParameter(url, pagination.parameter, String(pagination.first));
    while (url !== undefined && pages < pagination.maxPages && items.length < pagination.maxItems) {
      const release = pages === 0 ? noRelease : await startNextRequest();
      const response: ServiceResponse = await this.#send(request, url).finally(release);
      pages += 1;
      const pageItems =
        pagination.items === undefined ? response.content : evaluateExpression(pagination.items, response.content);
      if (!Array.isArray(pageItems))
        throw new PawlError(
          'RESULT_INVALID',
          `Page ${pages} of ${url.host} holds no list${pagination.items === undefined ? '' : ` at ${pagination.items}`}.`,
        );
      items.push(...pageItems);
      this.#ctx.progress({ progress: items.length, message: `${pages} pages` });
      url = this.#nextPage(url, pagination, response, { pageItems, pageNumber: pages });
      // Services omit the key from the addresses that they return.
      if (url !== undefined) this.#addSecrets(url, request.secretQuery);
    }
    const truncated = url !== undefined || items.length > pagination.maxItems;
    const returned = items.slice(0, pagination.maxItems);
    const { result } = this.#connector;
    return {
      output: { items: result === undefined ? returned : evaluateExpression(result, returned), truncated },
    };
  }

  /** Returns the next page's address; undefined after the last one. */
  #nextPage(
    url: URL,
    pagination: NonNullable<Connector['pagination']>,
    { headers, content }: ServiceResponse,
    { pageItems, pageNumber }: { readonly pageItems: readonly unknown[]; readonly pageNumber: number },
  ): URL | undefined {
    const checkedNextUrl = (address: string) => {
      if (!URL.canParse(address, url.href))
        throw new PawlError('RESULT_INVALID', `${url.host} names a next page that is not an address.`);
      const next = new URL(address, url.href);
      if (next.origin !== url.origin)
        throw new PawlError('PERMISSION_DENIED', `${url.host} names a next page on another host, ${next.host}.`);
      requireAllowed(this.#connector, next);
      return next;
    };
    switch (pagination.by) {
      case 'link': {
        const next = nextLink(headers.get('link') ?? '');
        return next === undefined ? undefined : checkedNextUrl(next);
      }
      case 'cursor': {
        const cursor = evaluateExpression(pagination.cursor, content);
        if (cursor === undefined || cursor === null || cursor === '' || cursor === false) return undefined;
        if (pagination.parameter === undefined) return checkedNextUrl(asText(cursor));
        const next = new URL(url.href);
        setQueryParameter(next, pagination.parameter, asText(cursor));
        return next;
      }
      case 'page': {
        if (pageItems.length === 0) return undefined;
        const next = new URL(url.href);
        setQueryParameter(next, pagination.parameter, String(pagination.first + pageNumber));
        return next;
      }
    }
  }

  #mapResult(content: unknown, status: number): unknown {
    const { result } = this.#connector;
    if (content === undefined) return { status };
    return result === undefined ? content : evaluateExpression(result, content);
  }

  #urlWithSecrets({ url, secretQuery }: ConnectorRequest): URL {
    const address = new URL(url.href);
    this.#addSecrets(address, secretQuery);
    return address;
  }

  #addSecrets(address: URL, secretQuery: ConnectorRequest['secretQuery']): void {
    for (const [name, template] of Object.entries(secretQuery))
      setQueryParameter(address, name, this.#fillSecrets(template));
  }

  #fillSecrets(template: string): string {
    return template.replaceAll(/\{secret:([^{}]*)\}/g, (_placeholder, name: string) => this.#secrets.get(name) ?? '');
  }

  /** The Basic scheme encodes credentials in Base64, which has no colon. A secret with a colon is not encoded yet. */
  #headerText(template: string): string {
    const text = this.#fillSecrets(template);
    const credentials = text.slice('Basic '.length);
    if (!/^Basic \{secret:[^{}]*\}$/i.test(template) || !credentials.includes(':')) return text;
    return `Basic ${Buffer.from(credentials).toString('base64')}`;
  }

  /** Sends one request and, for a read, follows redirects within the allow list. */
  async #send(request: ConnectorRequest, url: URL): Promise<ServiceResponse> {
    const { method, body } = request;
    const { idempotencyHeader, maxResponseBytes, accept } = this.#connector;
    const allHeaders = Object.entries(request.headers).map(
      ([name, template]): readonly [name: string, text: string, template: string] => [
        name,
        this.#headerText(template),
        template,
      ],
    );
    if (idempotencyHeader !== undefined) allHeaders.push([idempotencyHeader, this.#ctx.idempotencyKey, '']);
    let leftOrigin = false;
    for (let currentUrl = url, redirects = 0; ; redirects += 1) {
      // Headers for the first origin are sent to no other one. They stay off, even when a later redirect leads back.
      leftOrigin ||= currentUrl.origin !== url.origin;
      const sentHeaders = allHeaders.filter(
        ([name, , template]) => !leftOrigin || (isForAnyOrigin(name) && !template.includes('{secret:')),
      );
      const request = this.#ctx.fetch(currentUrl, {
        method,
        redirect: 'manual',
        headers: Object.fromEntries(sentHeaders.map(([name, text]) => [name, text])),
        ...(body !== undefined && { body }),
      });
      const response = await this.#redactErrors(request);
      const location = response.headers.get('location');
      const isRedirect = [301, 302, 303, 307, 308].includes(response.status) && !accept.includes(response.status);
      if (isRedirect && location !== null && ['GET', 'HEAD'].includes(method) && redirects < MAX_REDIRECTS) {
        await response.body?.cancel();
        currentUrl = this.#redirectUrl(currentUrl, location);
        continue;
      }
      if (!response.ok && !accept.includes(response.status)) throw await this.#failure(method, currentUrl, response);
      const content = this.#contentOf(response, await this.#redactErrors(readBytes(response, maxResponseBytes)));
      return { status: response.status, headers: response.headers, content };
    }
  }

  #redirectUrl(from: URL, location: string): URL {
    if (!URL.canParse(location, from.href))
      throw new PawlError('HTTP_5XX', `${from.host} redirects to something that is not an address.`);
    const to = new URL(location, from.href);
    requireAllowed(this.#connector, to);
    return to;
  }

  async #redactErrors<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      // The address may hold a secret.
      if (error instanceof Error) error.message = this.#redactText(error.message);
      throw error;
    }
  }

  #contentOf(response: Response, bytes: Uint8Array): unknown {
    const type = (response.headers.get('content-type') ?? '').toLowerCase();
    if (bytes.length === 0) return undefined;
    if (BINARY_TYPE.test(type) || (!TEXT_TYPE.test(type) && isBinary(bytes)))
      return {
        mediaType: type.split(';')[0] || 'application/octet-stream',
        base64: Buffer.from(bytes).toString('base64'),
      };
    const text = decodeDocument(bytes, lastContentType(type));
    const isJson = JSON_TYPE.test(type);
    // Many services label JSON as plain text. A declaration that names a part of the result knows better.
    const { result, pagination } = this.#connector;
    if (!isJson && result === undefined && pagination === undefined) return this.#redactText(text);
    let content: unknown;
    try {
      content = parseWithLongNumbersAsText(text);
    } catch {
      if (!isJson || !response.ok) return this.#redactText(text);
      throw new PawlError('RESULT_INVALID', 'The service labels its answer as JSON, but it does not parse as JSON.');
    }
    return this.#redactContent(content);
  }

  /** Redacts secrets, because a service may echo them. */
  #redactText(text: string): string {
    return this.#secretForms.reduce((clean, form) => clean.replaceAll(form, REDACTED), text);
  }

  /** Redacts parsed values, because JSON has many ways to write a character. */
  #redactContent(content: unknown, depth = 0): unknown {
    if (this.#secretForms.length === 0) return content;
    if (depth > MAX_DEPTH)
      throw new PawlError('RESULT_INVALID', `The answer is nested more than ${MAX_DEPTH} levels deep.`);
    if (typeof content === 'string') return this.#redactText(content);
    if (typeof content === 'number') return this.#secretForms.includes(String(content)) ? REDACTED : content;
    if (Array.isArray(content)) return content.map((entry) => this.#redactContent(entry, depth + 1));
    if (typeof content !== 'object' || content === null) return content;
    return Object.fromEntries(
      Object.entries(content).map(([name, member]) => [this.#redactText(name), this.#redactContent(member, depth + 1)]),
    );
  }

  async #failure(method: string, url: URL, response: Response): Promise<Error> {
    const { status, headers } = response;
    const page = await readErrorPage(response, this.#connector.maxResponseBytes);
    const content = orUndefined(() => this.#contentOf(response, page));
    const body = typeof content === 'string' ? content : (JSON.stringify(content) ?? '');
    const quoted = body === '' ? '' : `: ${startOf(body, QUOTED_LENGTH)}`;
    const location = headers.get('location');
    const redirectNote = status < 400 && location !== null ? `, a redirect to ${this.#redactText(location)}` : '';
    const message = `${method} ${url.host}${url.pathname} answers ${status}${redirectNote}${quoted}`;
    // A service may execute a request before it redirects its client elsewhere.
    return status < 400 ? new PawlError('RESULT_INVALID', message) : statusError(message, response);
  }
}

/** The forms in which a secret occurs: as it is, in a path, in a query, in JSON, and as credentials. */
function secretForms(secret: string): readonly string[] {
  if (secret === '') return [];
  const inQuery = new URLSearchParams({ s: secret }).toString().slice(2);
  const inBase64 = Buffer.from(secret).toString('base64');
  return [secret, encodeURIComponent(secret), inQuery, JSON.stringify(secret).slice(1, -1), inBase64];
}

/** Returns the address with the relation `next` in a `Link` header (RFC 8288). */
function nextLink(header: string): string | undefined {
  const links = header.matchAll(/<([^>]*)>((?:\s*;\s*[^\s=;,]+(?:\s*=\s*(?:"[^"]*"|[^\s;,"]*))?)*)/g);
  for (const [, address, parameters = ''] of links) {
    const [, quoted, bare = ''] = /;\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]*))/i.exec(parameters) ?? [];
    if ((quoted ?? bare).toLowerCase().split(/\s+/).includes('next')) return address;
  }
  return undefined;
}

/** Whether bytes hold a character that no text has. */
function isBinary(bytes: Uint8Array): boolean {
  return bytes.includes(0) || !isUtf8(bytes);
}

async function readBytes(response: Response, maxBytes: number): Promise<Uint8Array> {
  const { bytes, truncated } = await readUpTo(response, maxBytes);
  if (!truncated) return bytes;
  throw new PawlError('RESULT_TOO_LARGE', `The answer is larger than the ${maxBytes} bytes that the connector takes.`);
}
