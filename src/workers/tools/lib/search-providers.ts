/** The requests to each search engine, and the parsing of its answers. */
import { z } from 'zod';
import { PawlError } from '../../../shared/errors/failure.ts';

interface SearchRequest {
  readonly base: string;
  readonly apiKey: string | undefined;
  readonly query: string;
  readonly count: number;
  readonly freshness: 'day' | 'week' | 'month' | 'year' | undefined;
  readonly domains: readonly string[] | undefined;
}

interface SearchHit {
  readonly title: string;
  readonly url: string;
  readonly snippet: string;
  readonly publishedAt?: string;
}

export interface SearchProvider {
  readonly endpoint?: string;
  request(request: SearchRequest): { readonly url: string; readonly init: RequestInit };
  results(answer: unknown): readonly SearchHit[];
}

const text = z.string().nullish();

const searxng: SearchProvider = {
  request({ base, query, freshness, domains }) {
    const url = new URL('search', base.endsWith('/') ? base : `${base}/`);
    url.searchParams.set('q', withSites(query, domains));
    url.searchParams.set('format', 'json');
    if (freshness !== undefined) url.searchParams.set('time_range', freshness);
    return { url: url.href, init: { headers: { accept: 'application/json' } } };
  },
  results: (answer) =>
    parseAnswer(
      'searxng',
      z.object({ results: z.array(z.object({ url: text, title: text, content: text, publishedDate: text })) }),
      answer,
    ).results.map(({ url, title, content, publishedDate }) => toHit(title, url, content, publishedDate)),
};

const FRESHNESS_OF_BRAVE = { day: 'pd', week: 'pw', month: 'pm', year: 'py' } as const;

const brave: SearchProvider = {
  endpoint: 'https://api.search.brave.com',
  request({ base, apiKey, query, count, freshness, domains }) {
    const url = new URL('/res/v1/web/search', base);
    url.searchParams.set('q', withSites(query, domains));
    url.searchParams.set('count', String(count));
    url.searchParams.set('text_decorations', 'false');
    if (freshness !== undefined) url.searchParams.set('freshness', FRESHNESS_OF_BRAVE[freshness]);
    return { url: url.href, init: { headers: { accept: 'application/json', 'x-subscription-token': apiKey ?? '' } } };
  },
  results: (answer) =>
    // Brave leaves `web` out when it finds nothing.
    (
      parseAnswer(
        'brave',
        z.object({
          web: z
            .object({ results: z.array(z.object({ url: text, title: text, description: text, page_age: text })) })
            .nullish(),
        }),
        answer,
      ).web?.results ?? []
    ).map(({ url, title, description, page_age: pageAge }) => toHit(title, url, description, pageAge)),
};

const tavily: SearchProvider = {
  endpoint: 'https://api.tavily.com',
  request({ base, apiKey, query, count, freshness, domains }) {
    const body = {
      query,
      max_results: count,
      ...(freshness !== undefined && { time_range: freshness }),
      ...(domains === undefined || domains.length === 0 ? {} : { include_domains: domains }),
    };
    return {
      url: new URL('/search', base).href,
      init: {
        method: 'POST',
        headers: { accept: 'application/json', 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
        body: JSON.stringify(body),
      },
    };
  },
  results: (answer) =>
    parseAnswer(
      'tavily',
      z.object({ results: z.array(z.object({ url: text, title: text, content: text, published_date: text })) }),
      answer,
    ).results.map(({ url, title, content, published_date: published }) => toHit(title, url, content, published)),
};

export const searchProviders = { searxng, brave, tavily } as const satisfies Record<string, SearchProvider>;

function withSites(query: string, domains: readonly string[] | undefined): string {
  return domains === undefined || domains.length === 0
    ? query
    : `${query} ${domains.map((domain) => `site:${domain}`).join(' OR ')}`;
}

function parseAnswer<Schema extends z.ZodType>(provider: string, schema: Schema, answer: unknown): z.output<Schema> {
  const parsed = schema.safeParse(answer);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new PawlError(
    'RESULT_INVALID',
    `${provider} answered in an unknown form: ${issue?.path.join('.')}: ${issue?.message}.`,
  );
}

function toHit(
  title: string | null | undefined,
  url: string | null | undefined,
  snippet: string | null | undefined,
  date: string | null | undefined,
): SearchHit {
  const publishedAt = isoDate(date);
  return {
    title: plainText(title),
    url: url ?? '',
    snippet: plainText(snippet),
    ...(publishedAt !== undefined && { publishedAt }),
  };
}

/** Removes markup such as <strong>, and puts the text on one line. */
function plainText(value: string | null | undefined): string {
  return (value ?? '')
    .replaceAll(/<\/?[a-z][^>]*>/gi, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
}

function isoDate(value: string | null | undefined): string | undefined {
  if (!value) return undefined;
  if (/^\d{4}-\d{2}-\d{2}$/.test(value)) return value;
  const time = Date.parse(value);
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}
