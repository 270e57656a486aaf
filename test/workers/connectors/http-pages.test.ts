import { describe, expect, test } from 'vitest';
import { contentOf } from '../../helpers/fleet.ts';
import { connect, SECRET } from './http-rig.ts';
import { sendJson, startTestService } from './service.ts';

describe('pages', () => {
  test('a list keeps its separators beside a secret and the number of a page', async () => {
    const service = await startTestService((_request, response) => sendJson(response, []));
    const { session } = await connect(service, {
      arguments: { tags: { in: 'query', style: 'comma' } },
      query: { key: '{secret:api}' },
      secrets: { api: { env: 'PAWL_SECRET_API' } },
      pagination: { by: 'page', items: '@', parameter: 'page', first: 0, maxPages: 1, maxItems: 9 },
    });
    await session.call('ask', { id: '1', tags: ['a', 'b,c'] });
    expect(service.asked[0]?.url).toBe(`/things/1?tags=a,b%2Cc&key=${SECRET}&page=0`);
  });

  const pages = [[1, 2], [3, 4], [5]];

  test.each([
    ['links', { by: 'link', items: 'items', maxPages: 10, maxItems: 100 }, [1, 2, 3, 4, 5], false],
    [
      'a cursor',
      { by: 'cursor', items: 'items', cursor: 'next', parameter: 'page', maxPages: 10, maxItems: 100 },
      [1, 2, 3, 4, 5],
      false,
    ],
    [
      'their number, up to so many entries',
      { by: 'page', items: 'items', parameter: 'page', first: 0, maxPages: 10, maxItems: 3 },
      [1, 2, 3],
      true,
    ],
    [
      'their number, up to so many pages',
      { by: 'page', items: 'items', parameter: 'page', first: 0, maxPages: 1, maxItems: 9 },
      [1, 2],
      true,
    ],
  ] as const)('are followed by %s', async (_by, pagination, items, truncated) => {
    const service = await startTestService(({ url }, response) => {
      const page = Number(new URL(url, 'http://x').searchParams.get('page') ?? 0);
      const next = page + 1 < pages.length ? page + 1 : undefined;
      const headers = next === undefined ? {} : { link: `</things/all?page=${next}>; rel="next"` };
      sendJson(response, { items: pages[page] ?? [], next }, 200, headers);
    });
    const { session } = await connect(service, { pagination });
    expect(contentOf(await session.call('ask', { id: 'all' }))).toEqual({ items, truncated });
  });

  test.each([
    ['beside others', '</things/first>; rel=first; title="one, two", </things/all?page=1>; rel="next"'],
    ['with a title that has a comma', '</things/all?page=1>; title="three, four"; rel="next"'],
    ['of several relations', '</things/all?page=1>; rel="last next"'],
    ['without quotes', '</things/all?page=1>;rel=NEXT'],
  ])('are followed by a link %s, and the key in the query goes along', async (_what, link) => {
    const service = await startTestService(({ url }, response) => {
      const { searchParams } = new URL(url, 'http://x');
      if (searchParams.get('key') !== SECRET) return sendJson(response, {}, 401);
      sendJson(response, pages[Number(searchParams.get('page') ?? 0)], 200, searchParams.has('page') ? {} : { link });
    });
    const { session } = await connect(service, {
      pagination: { by: 'link' },
      query: { key: '{secret:api}' },
      secrets: { api: { env: 'PAWL_SECRET_API' } },
    });
    expect(contentOf(await session.call('ask', { id: 'all' }))).toEqual({ items: [1, 2, 3, 4], truncated: false });
  });

  test.each(['</things/before>; rel="prev"; title="next"', '</next>; rel="nextish"', 'next'])(
    'end where no link is the next one: %s',
    async (link) => {
      const service = await startTestService((_asked, response) => sendJson(response, [1], 200, { link }));
      const { session } = await connect(service, { pagination: { by: 'link' } });
      expect(contentOf(await session.call('ask', { id: 'all' }))).toEqual({ items: [1], truncated: false });
    },
  );
});
