import type { IncomingMessage, RequestListener } from 'node:http';
import { describe, expect, test } from 'vitest';
import { webSearch } from '../../../src/workers/tools/web-search.ts';
import { testContext } from '../../helpers/context.ts';
import { site } from './site.ts';

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = '';
  for await (const chunk of request) body += String(chunk);
  return body;
}

describe('web_search (A16, I21)', () => {
  const search = async (listener: RequestListener, config: Record<string, unknown>, params: object = {}) => {
    const { url, host, asked } = await site(listener);
    const ctx = testContext({ allowedHosts: [host], config: { ...config, baseUrl: url } });
    return { result: Promise.resolve(webSearch.run(webSearch.parse({ query: 'pawl', ...params }), ctx)), asked };
  };

  test('SearXNG', async () => {
    const { result, asked } = await search(
      (_, response) =>
        response.end(
          JSON.stringify({
            results: [
              {
                url: 'https://a.example/x',
                title: 'A',
                content: 'about\n a',
                publishedDate: '2026-10-01T00:00:00',
                engine: 'brave',
              },
              { url: 'no url', title: 'B' },
              { url: 'https://c.example/', title: 'C', content: null, publishedDate: null },
            ],
          }),
        ),
      { provider: 'searxng' },
      { freshness: 'month', domains: ['a.example', 'c.example'] },
    );
    expect((await result).output).toEqual({
      provider: 'searxng',
      results: [
        {
          title: 'A',
          url: 'https://a.example/x',
          snippet: 'about a',
          source: 'a.example',
          publishedAt: new Date('2026-10-01T00:00:00').toISOString(),
        },
        { title: 'C', url: 'https://c.example/', snippet: '', source: 'c.example' },
      ],
    });
    const url = new URL(asked[0]?.url ?? '', 'http://x');
    expect([url.pathname, ...url.searchParams.values()]).toEqual([
      '/search',
      'pawl site:a.example OR site:c.example',
      'json',
      'month',
    ]);
    expect((await result).tainted).toBe(true);
  });

  test('Brave', async () => {
    const { result, asked } = await search(
      (_, response) =>
        response.end(
          JSON.stringify({
            type: 'search',
            web: {
              results: [
                {
                  url: 'https://b.example/',
                  title: 'B',
                  description: 'the <strong>pawl</strong>',
                  page_age: '2026-09-30T12:00:00',
                },
              ],
            },
          }),
        ),
      { provider: 'brave', apiKey: 'brave-key' },
      { count: 3, freshness: 'week' },
    );
    expect((await result).output.results).toEqual([
      {
        title: 'B',
        url: 'https://b.example/',
        snippet: 'the pawl',
        source: 'b.example',
        publishedAt: new Date('2026-09-30T12:00:00').toISOString(),
      },
    ]);
    expect(asked[0]?.url).toBe('/res/v1/web/search?q=pawl&count=3&text_decorations=false&freshness=pw');
    expect(asked[0]?.headers['x-subscription-token']).toBe('brave-key');
    expect(
      (
        await (
          await search((_, response) => response.end('{"type":"search"}'), { provider: 'brave', apiKey: 'k' })
        ).result
      ).output.results,
    ).toEqual([]);
  });

  test('Tavily', async () => {
    const bodies: string[] = [];
    const { result, asked } = await search(
      async (request, response) => {
        bodies.push(await bodyOf(request));
        response.end(
          JSON.stringify({
            query: 'pawl',
            results: [
              { url: 'https://t.example/', title: 'T', content: 'text', score: 0.9, published_date: '2026-08-01' },
            ],
          }),
        );
      },
      { provider: 'tavily', apiKey: 'tavily-key' },
      { domains: ['t.example'] },
    );
    expect((await result).output.results).toEqual([
      { title: 'T', url: 'https://t.example/', snippet: 'text', source: 't.example', publishedAt: '2026-08-01' },
    ]);
    expect([asked[0]?.method, asked[0]?.url, asked[0]?.headers.authorization]).toEqual([
      'POST',
      '/search',
      'Bearer tavily-key',
    ]);
    expect(JSON.parse(bodies[0] ?? '')).toEqual({ query: 'pawl', max_results: 8, include_domains: ['t.example'] });
  });

  test.each([
    [429, 'slow down', { status: 429 }],
    [200, 'no json', { code: 'RESULT_INVALID' }],
    [200, '{"results":[{"url":1}]}', { code: 'RESULT_INVALID', message: expect.stringContaining('results.0.url') }],
  ])('an answer %i %j is a clear error', async (status, body, error) => {
    const { result } = await search((_, response) => response.writeHead(status).end(body), { provider: 'searxng' });
    await expect(result).rejects.toMatchObject(error);
  });

  test.each([
    [{}, 'No search engine is configured'],
    [{ provider: 'google' }, 'provider'],
    [{ provider: 'brave' }, 'apiKey is missing'],
    [{ provider: 'searxng' }, 'baseUrl'],
  ])('with the configuration %j it says what to set', async (config, message) => {
    const run = async () => webSearch.run(webSearch.parse({ query: 'x' }), testContext({ config }));
    await expect(run()).rejects.toMatchObject({ code: 'CONFIGURATION', message: expect.stringContaining(message) });
  });

  test('an answer that breaks off is a broken connection, not one in another form', async () => {
    const { result } = await search(
      (_, response) => {
        response.writeHead(200, { 'content-length': 100 });
        response.write('{"results"', () => response.destroy());
      },
      { provider: 'searxng' },
    );
    await expect(result).rejects.toMatchObject({ code: 'CONNECTION_RESET' });
  });
});
