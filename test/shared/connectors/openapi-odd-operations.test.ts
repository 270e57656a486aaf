import { describe, expect, test } from 'vitest';
import { connectorSchema } from '../../../src/shared/connectors/connector.ts';
import { connectorRequest } from '../../../src/shared/connectors/connector-request.ts';
import { importOpenApi } from '../../../src/shared/connectors/openapi-import.ts';

const document = { openapi: '3.1.0', info: { title: 'Things' }, servers: [{ url: 'https://api.example.com' }] };
const text = { type: 'string' };
const parameter = (name: string, place: string, more: object = {}) => ({ name, in: place, schema: text, ...more });

async function imported(changes: object) {
  const { tools, skipped } = await importOpenApi({ ...document, ...changes });
  const routing = (tools[0]?.spec as { readonly routing?: unknown } | undefined)?.routing;
  return {
    tools,
    reason: skipped[0]?.reason,
    schema: tools[0]?.spec.inputSchema,
    request: (params: Record<string, unknown> = {}) => connectorRequest(connectorSchema.parse(routing), params),
  };
}

const withOperation = (operation: object, path = '/things', method = 'get') => ({
  paths: { [path]: { [method]: operation } },
});

describe('paths', () => {
  test.each(['/things', '/things/{Id}.json', '/things/%7Bid%7D'])(
    '%s has no place for the parameter {id}',
    async (path) => {
      const parameters = [parameter('id', 'path', { required: true }), parameter('Id', 'path')];
      const { schema } = await imported(withOperation({ parameters }, path));
      expect(schema?.['properties']).not.toHaveProperty('id');
    },
  );

  test.each([
    ['/a?{id}', 'the query of its path names {id}, which it does not describe'],
    ['/a?x=1&x=2', 'the query of its path has x twice'],
    ['/a/{id', 'its path has a stray brace'],
    ['/a/{{id}}', 'its path has a stray brace'],
    ['/a/id}', 'its path has a stray brace'],
  ])('%s is left out', async (path, reason) => {
    const made = await imported(withOperation({ parameters: [parameter('id', 'path')] }, path));
    expect(made.reason).toBe(reason);
  });

  test.each([
    ['https://a.example.com/{id}', { url: 'https://b.example.com' }, 'https://b.example.com/x/v'],
    [' https://a.example.com ', undefined, 'https://a.example.com/x/v'],
  ])('the server %j', async (url, other, expected) => {
    const servers = [{ url }, ...(other === undefined ? [] : [other])];
    const parameters = [parameter('id', 'path')];
    const { request } = await imported({ ...withOperation({ parameters }, '/x/{id}'), servers });
    expect(request({ id: 'v' }).url.href).toBe(expected);
  });

  test('what stands beside the reference of a path counts, too', async () => {
    const components = { pathItems: { Shared: { get: { operationId: 'look' } } } };
    const item = {
      $ref: '#/components/pathItems/Shared',
      post: { operationId: 'make' },
      parameters: [parameter('q', 'query')],
    };
    const { tools } = await imported({ components, paths: { '/x': item } });
    expect(tools.map(({ name }) => name)).toEqual(['things.look', 'things.make']);
    for (const { spec } of tools) expect(spec.inputSchema['properties']).toHaveProperty('q');
  });
});

describe('parameters', () => {
  test.each([
    ['3.0.3', 'of all'],
    ['3.1.0', 'of this'],
  ])('in %s the description beside a reference is %s', async (openapi, expected) => {
    const components = { parameters: { Q: parameter('q', 'query', { description: 'of all' }) } };
    const parameters = [{ $ref: '#/components/parameters/Q', description: 'of this' }];
    const { schema } = await imported({ openapi, components, ...withOperation({ parameters }) });
    expect(schema).toMatchObject({ properties: { q: { description: expected } } });
  });

  test('a name in another script is in the description', async () => {
    const parameters = [parameter('名前', 'query'), parameter('年齢', 'query', { description: 'The age.' })];
    const { schema, request } = await imported(withOperation({ parameters }));
    expect(schema).toMatchObject({
      properties: { parameter: { description: '名前' }, parameter_2: { description: 'The age.' } },
    });
    expect([...request({ parameter: 'a' }).url.searchParams]).toEqual([['名前', 'a']]);
  });

  test.each([
    [1, '1'],
    [true, 'true'],
  ])('the name %j, as YAML reads it, is a text', async (name, expected) => {
    const { request } = await imported(withOperation({ parameters: [{ ...parameter('', 'query'), name }] }));
    expect([...request({ [expected]: 'a' }).url.searchParams]).toEqual([[expected, 'a']]);
  });

  const place = { type: 'object', properties: { x: { type: 'integer' } } };
  test.each([
    { allOf: [place] },
    { anyOf: [{ type: 'null' }, place] },
    { oneOf: [{ $ref: '#/components/schemas/Place' }, text] },
    { properties: { x: {} } },
  ])('an exploded object of a path or a header is left out, however it is described: %j', async (schema) => {
    const components = { schemas: { Place: { allOf: [place] } } };
    for (const [where, path] of [
      ['path', '/things/{at}'],
      ['header', '/things'],
    ] as const) {
      const made = await imported({
        components,
        ...withOperation({ parameters: [{ name: 'at', in: where, explode: true, schema }] }, path),
      });
      expect(made.reason).toBe('its parameter at is of the style simple, an exploded object');
    }
  });
});

test('schemas that combine one another many times are looked through once', async () => {
  const refer = (index: number) => ({ $ref: `#/components/schemas/S${index}` });
  const schemas = Object.fromEntries(
    Array.from({ length: 12 }, (_, index) => [`S${index}`, { allOf: Array(9).fill(refer(index + 1)) }]),
  );
  const parameters = [{ name: 'at', in: 'header', explode: true, schema: refer(0) }];
  const { reason } = await imported({ components: { schemas }, ...withOperation({ parameters }) });
  expect(reason).toContain('too costly');
});

describe('credentials', () => {
  const securitySchemes = {
    key: { type: 'apiKey', in: 'header', name: 'X-Key' },
    query: { type: 'apiKey', in: 'query', name: 'key' },
    basic: { type: 'http', scheme: 'basic' },
    bearer: { type: 'http', scheme: 'bearer' },
    'a b': { type: 'apiKey', in: 'header', name: 'X-A' },
    a_b: { type: 'apiKey', in: 'header', name: 'X-B' },
    nameless: { type: 'apiKey', in: 'header' },
    key2: { type: 'apiKey', in: 'header', name: 'x-key' },
  };

  test.each([
    ['header', 'x-KEY', 'key'],
    ['query', 'key', 'query'],
  ])('a model is not asked for the %s that a secret fills', async (where, name, scheme) => {
    const parameters = [parameter(name, where, { required: true }), parameter('q', 'query')];
    const { schema } = await imported({
      ...withOperation({ parameters, security: [{ [scheme]: [] }] }),
      components: { securitySchemes },
    });
    expect(Object.keys(schema?.['properties'] ?? {})).toEqual(['q']);
    expect(schema?.['required']).toBeUndefined();
  });

  test('a secret takes the place of a constant of the path, and stays beside the type of a body', async () => {
    const requestBody = { content: { 'application/merge-patch+json': { schema: {} } } };
    const operation = { requestBody, security: [{ query: [], key: [] }] };
    const { request } = await imported({
      ...withOperation(operation, '/a?key=demo', 'patch'),
      components: { securitySchemes },
    });
    expect(request({ body: {} })).toMatchObject({
      secretQuery: { key: '{secret:query}' },
      headers: { 'x-key': '{secret:key}', 'content-type': 'application/merge-patch+json' },
    });
  });

  test.each([
    [['basic', 'bearer'], 'it is secured by basic and bearer in the same place'],
    [['key', 'key2'], 'it is secured by key and key2 in the same place'],
    [['nameless'], 'it is secured by nameless, which no header can say'],
    [['missing'], 'it is secured by missing, which the document does not describe'],
  ])('%j together cannot be sent', async (names, reason) => {
    const security = [Object.fromEntries(names.map((name) => [name, []]))];
    const made = await imported({ ...withOperation({ security }), components: { securitySchemes } });
    expect(made.reason).toBe(reason);
  });
});

test.each([
  ['a b', 'a_b'],
  ['名', '年'],
])('the schemes %s and %s have secrets of their own', async (one, other) => {
  const scheme = (name: string) => ({ type: 'apiKey', in: 'header', name });
  const security = [{ [one]: [], [other]: [] }];
  const components = { securitySchemes: { [one]: scheme('X-One'), [other]: scheme('X-Other') } };
  const { tools, request } = await imported({ ...withOperation({ security }), components });
  const variables = JSON.stringify(tools).match(/(?<=")PAWL_SECRET_[A-Z0-9_]+(?=")/g);
  expect(new Set(variables).size).toBe(2);
  const { 'x-one': sentOne, 'x-other': sentOther } = request().headers;
  expect(sentOne).not.toBe(sentOther);
});

test('half a character in a path is refused before anything is sent', async () => {
  const { request } = await imported(withOperation({ parameters: [parameter('id', 'path')] }, '/a/{id}'));
  expect(() => request({ id: 'a\ud83d' })).toThrow(expect.objectContaining({ code: 'INVALID_PARAMS' }));
});

describe('bodies', () => {
  const form = 'application/x-www-form-urlencoded';
  const withBody = (type: string, schema: object) =>
    imported(withOperation({ requestBody: { content: { [type]: { schema } } } }, '/things', 'post'));

  test.each(['a=b', 5, true, ['a']])('a form is an object, and not %j', async (body) => {
    const { request } = await withBody(form, {});
    expect(() => request({ body })).toThrow(
      expect.objectContaining({ code: 'INVALID_PARAMS', message: expect.stringContaining('body must be an object') }),
    );
  });

  test.each([form, 'text/plain', 'text/csv'])('null is no body of the type %s', async (type) => {
    const { request } = await withBody(type, { type: ['string', 'object', 'null'].slice(type === form ? 1 : 0) });
    const { body, headers } =
      type === 'text/csv' ? (await withBody(type, {})).request({ body: null }) : request({ body: null });
    expect(body).toBeUndefined();
    expect(headers).not.toHaveProperty('content-type');
  });

  test.each([
    ['text/xml', { type: 'object' }],
    ['text/xml', { allOf: [{ $ref: '#/nowhere' }, { properties: { a: {} } }] }],
    ['text/csv', { type: 'array', items: text }],
  ])('an object is not sent as %s', async (type, schema) => {
    expect((await withBody(type, schema)).reason).toBe(`its body is of the type ${type}`);
  });

  test.each([
    ['application/*+json', {}, { a: 1 }, 'application/json'],
    ['text/html; charset=iso-8859-1', text, 'é', 'text/html; charset=utf-8'],
    ['text/csv; header=present', text, 'a,b', 'text/csv; header=present; charset=utf-8'],
  ])('a body of %s', async (type, schema, body, expected) => {
    const { request } = await withBody(type, schema);
    expect(request({ body }).headers['content-type']).toBe(expected);
  });
});
