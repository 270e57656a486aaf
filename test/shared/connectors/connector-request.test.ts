import { describe, expect, test } from 'vitest';
import { connectorSchema } from '../../../src/shared/connectors/connector.ts';
import { connectorRequest } from '../../../src/shared/connectors/connector-request.ts';

const requestOf = (routing: object, params: Record<string, unknown>) =>
  connectorRequest(connectorSchema.parse({ method: 'GET', url: 'https://api.example.com/items', ...routing }), params);

const queryOf = (style: string, value: unknown, more: object = {}) => {
  const { url } = requestOf({ arguments: { a: { in: 'query', style }, b: { in: 'query' } }, ...more }, { a: value });
  return [...url.searchParams].map((pair) => pair.join('=')).join(' & ');
};

describe('the request of a connector (I14)', () => {
  test.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'a'])(
    'a parameter called %s is sent, wherever it goes, and is none where it is not given',
    (name) => {
      const params = Object.fromEntries([[name, 'x']]) as Record<string, unknown>;
      expect([...requestOf({}, params).url.searchParams]).toEqual([[name, 'x']]);
      for (const body of ['json', 'text'])
        expect(requestOf({ method: 'POST', body }, params).body).toBe(`{"${name}":"x"}`);
      expect(requestOf({ method: 'POST', body: 'form' }, params).body).toBe(`${name}=x`);
      const url = `https://api.example.com/{${name}}`;
      expect(requestOf({ url }, params).url.pathname).toBe('/x');
      expect(() => requestOf({ url }, {})).toThrow('is needed for the path and missing');
      expect(requestOf({ query: { q: `{${name}}` } }, {}).url.search).toBe('');
      const renamed = { arguments: { p: { in: 'body', name } }, method: 'POST' };
      expect(requestOf(renamed, { p: { deep: 1 } }).body).toBe(`{"${name}":{"deep":1}}`);
      const headers = requestOf({ arguments: { p: { in: 'header', name } } }, { p: 'x' }).headers;
      expect(Object.entries(headers)).toContainEqual([name.toLowerCase(), 'x']);
      const nested = Object.fromEntries([['p', params]]);
      expect(requestOf({ method: 'POST' }, nested).body).toBe(`{"p":{"${name}":"x"}}`);
    },
  );

  const nested = { colour: 'red', size: { from: 1, to: [2, 3] }, none: null };

  test.each([
    ['repeat', [1, 'x'], 'a=1 & a=x'],
    ['repeat', { x: 1 }, 'a={"x":1}'],
    ['comma', [1, 'x'], 'a=1,x'],
    ['comma', { x: 1, y: true }, 'a=x,1,y,true'],
    ['space', [1, 'x'], 'a=1 x'],
    ['pipe', [1, 'x'], 'a=1|x'],
    ['members', [1, 'x'], 'a=1 & a=x'],
    ['members', nested, 'colour=red & size={"from":1,"to":[2,3]}'],
    ['members', 'plain', 'a=plain'],
    ['deep', nested, 'a[colour]=red & a[size][from]=1 & a[size][to][]=2 & a[size][to][]=3'],
    ['deep', [{ x: 1, y: 2 }, { x: 3 }], 'a[0][x]=1 & a[0][y]=2 & a[1][x]=3'],
    ['deep', ['x', 'y'], 'a[]=x & a[]=y'],
    ['json', ['x', 1], 'a=["x",1]'],
  ])('writes in the style %s %j as %s', (style, value, query) => {
    expect(queryOf(style, value)).toBe(query);
  });

  test.each([
    ['comma', 'a=x%2Cy+z,1'],
    ['space', 'a=x%2Cy+z%201'],
    ['pipe', 'a=x%2Cy+z%7C1'],
  ])('a separator of the style %s differs from the same character in an entry', (style, query) => {
    const fixed = { query: { b: 'c,d' } };
    const { url } = requestOf({ arguments: { a: { in: 'query', style } }, ...fixed }, { a: ['x,y z', 1] });
    expect(url.search).toBe(`?${query}&b=c%2Cd`);
    const form = { method: 'POST', body: 'form', arguments: { a: { in: 'body', style } } };
    expect(requestOf(form, { a: ['x,y z', 1] }).body).toBe(query);
  });

  test.each([
    ['another argument', {}],
    ['what is always sent', { arguments: { a: { in: 'query', style: 'members' } }, query: { b: 'fixed' } }],
    [
      'the number of the page',
      {
        arguments: { a: { in: 'query', style: 'members' } },
        pagination: { by: 'page', items: 'items', parameter: 'b' },
      },
    ],
  ])('refuses an object of which a member has the name of %s', (_what, more) => {
    expect(() => queryOf('members', { b: 'no' }, more)).toThrow(
      expect.objectContaining({ code: 'INVALID_PARAMS', message: 'a.b has the name of another parameter.' }),
    );
  });

  test('a bracket in the name of a member stays in it', () => {
    const { url } = requestOf({ arguments: { a: { in: 'query', style: 'deep' } } }, { a: { 'x]&b': 1 } });
    expect([...url.searchParams]).toEqual([['a[x]&b]', '1']]);
  });

  test('lists and objects stand in the path and in headers with commas', () => {
    const { url, headers } = requestOf(
      { url: 'https://api.example.com/items/{ids}', arguments: { tags: { in: 'header', name: 'X-Tags' } } },
      { ids: [1, '2,3'], tags: { x: 1, y: 2 } },
    );
    expect(url.pathname).toBe('/items/1,2%2C3');
    expect(headers['x-tags']).toBe('x,1,y,2');
  });

  test('what a parameter says is never the name of a secret, alone or together', () => {
    const routing = {
      headers: { 'x-key': '{secret:key}', 'x-both': '{first}{second} {secret:key}' },
      secrets: { key: { env: 'PAWL_SECRET_KEY' } },
      arguments: { title: { in: 'header' }, names: { in: 'header' } },
    };
    const { headers } = requestOf(routing, { title: '{secret:key}', names: ['a', '{secret:key}'] });
    expect(headers).toMatchObject({ title: '{ secret:key}', names: 'a,{ secret:key}', 'x-key': '{secret:key}' });
    expect(() => requestOf(routing, { first: '{', second: 'secret:key}' })).toThrow(
      expect.objectContaining({ code: 'INVALID_PARAMS' }),
    );
  });

  test('JSON in a header is written with the characters that a header takes', () => {
    const routing = { arguments: { arg: { in: 'header', style: 'json' } } };
    expect(requestOf(routing, { arg: { path: '/é' } }).headers['arg']).toBe('{"path":"/\\u00e9"}');
  });

  test('a form is written in the style of its members', () => {
    const form = { method: 'POST', body: 'form' };
    const whole = { ...form, bodyFrom: 'order', formStyle: 'deep' };
    expect(requestOf(whole, { order: { item: { id: 7 }, note: null } }).body).toBe('item%5Bid%5D=7');
    const parts = { ...form, arguments: { item: { in: 'body', name: 'thing', style: 'deep' } } };
    expect(requestOf(parts, { item: { id: 7 }, tags: ['x', 'y'] }).body).toBe('thing%5Bid%5D=7&tags=x&tags=y');
  });

  test('the type of a body is sent with a body alone', () => {
    const routing = { method: 'POST', bodyFrom: 'body', headers: { 'Content-Type': 'application/vnd.api+json' } };
    expect(requestOf(routing, { body: {} }).headers['content-type']).toBe('application/vnd.api+json');
    expect(requestOf(routing, {}).headers).not.toHaveProperty('content-type');
  });
});

test.each([
  ['::1', 'http://[::1]:8080'],
  ['[::1]:8080', 'http://[::1]:8080'],
  ['[0:0:0:0:0:0:0:1]', 'http://[::1]:8080'],
  ['2001:DB8::1', 'https://[2001:db8::1]'],
  ['bücher.example', 'https://bücher.example'],
  ['*.bücher.example', 'https://www.xn--bcher-kva.example'],
  ['*.example.org:443', 'https://www.example.org'],
  ['*.example.org:8443', 'https://www.example.org:8443'],
])('the host %s may be requested at %s', (host, address) => {
  const routing = { method: 'GET', url: `${address}/things`, allow: { hosts: [host] } };
  expect(connectorSchema.safeParse(routing).error?.issues).toBeUndefined();
  expect(() => connectorRequest(connectorSchema.parse(routing), {})).not.toThrow();
  const { success } = connectorSchema.safeParse({ ...routing, url: 'https://example.net/things' });
  expect(success).toBe(false);
});

test.each([
  ['*.example.org:443', 'https://www.example.org:8443'],
  ['*.example.org:443', 'https://example.org'],
  ['*.example.org', 'https://notexample.org'],
  ['example.org:443', 'http://example.org'],
])('the host %s is not that of %s', (host, address) => {
  const routing = { method: 'GET', url: `${address}/things`, allow: { hosts: [host] } };
  expect(connectorSchema.safeParse(routing).success).toBe(false);
});
