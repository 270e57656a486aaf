import { describe, expect, test } from 'vitest';
import { connectorSchema } from '../../../src/shared/connectors/connector.ts';
import { connectorRequest } from '../../../src/shared/connectors/connector-request.ts';
import { importOpenApi, type OpenApiImport } from '../../../src/shared/connectors/openapi-import.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { withOddParts } from '../../helpers/odd-values.ts';

const document = { openapi: '3.1.0', info: { title: 'Things' }, servers: [{ url: 'https://api.example.com/v1' }] };

async function requestOf(changes: object, params: Record<string, unknown> = {}, options: OpenApiImport = {}) {
  const { tools, skipped } = await importOpenApi({ ...document, ...changes }, options);
  expect(skipped).toEqual([]);
  const routing = (tools[0]?.spec as { readonly routing?: unknown } | undefined)?.routing;
  return connectorRequest(connectorSchema.parse(routing), params);
}

const withOperation = (operation: object, method = 'get') => ({ paths: { '/things': { [method]: operation } } });
const items = { type: 'array', items: { type: 'string' } };
const place = { type: 'object', properties: { x: { type: 'integer' } } };

test.each([
  [{ tags: { style: 'form', explode: false } }, 'tags=a,b&place=%7B%22x%22%3A1%7D&word=w'],
  [{ tags: { explode: false } }, 'tags=a,b&place=%7B%22x%22%3A1%7D&word=w'],
  [{ tags: { style: 'spaceDelimited' } }, 'tags=a%20b&place=%7B%22x%22%3A1%7D&word=w'],
  [{ tags: { style: 'pipeDelimited', explode: false } }, 'tags=a%7Cb&place=%7B%22x%22%3A1%7D&word=w'],
  [{ place: { style: 'deepObject' } }, 'tags=a&tags=b&place%5Bx%5D=1&word=w'],
  [{ place: { style: 'form' } }, 'tags=a&tags=b&x=1&word=w'],
  [{ tags: { contentType: 'application/json' } }, 'tags=%5B%22a%22%2C%22b%22%5D&place=%7B%22x%22%3A1%7D&word=w'],
  [{ word: { contentType: 'text/plain' }, unknown: {} }, 'tags=a&tags=b&place=%7B%22x%22%3A1%7D&word=w'],
])('a form is written as its encoding says: %j', async (encoding, expected) => {
  const schema = {
    type: 'object',
    properties: { tags: items, place: { $ref: '#/components/schemas/Place' }, word: {} },
  };
  const requestBody = { content: { 'application/x-www-form-urlencoded': { schema, encoding } } };
  const form = { ...withOperation({ requestBody }, 'post'), components: { schemas: { Place: place } } };
  const { body } = await requestOf(form, { body: { tags: ['a', 'b'], place: { x: 1 }, word: 'w' } });
  expect(body).toBe(expected);
});

test.each([
  ['https://eu.example.com/v2', { url: 'https://{region}.example.com/v2', variables: { region: { default: 'eu' } } }],
  ['https://api.example.com/v2', { url: '//api.example.com/v2/' }],
  ['https://api.example.com/v2', { url: 'HTTPS://API.example.com/v2' }],
  ['https://api.example.com/v2', { url: 'wss://api.example.com/v2' }, { url: 'https://api.example.com/v2' }],
  ['https://api.example.com/v2', { url: 'https://{x}.example.com' }, { url: 'https://api.example.com/v2' }],
])('the first server that HTTP reaches is asked: %s', async (expected, ...servers) => {
  const { url } = await requestOf({ ...withOperation({}), servers });
  expect(url.href).toBe(`${expected}/things`);
});

test.each([
  ['/api/v3', 'https://api.example.com', 'https://api.example.com/api/v3/things'],
  ['./api/v3/', 'https://api.example.com/', 'https://api.example.com/api/v3/things'],
  ['/api/v3', 'https://proxy.example.com/shop', 'https://proxy.example.com/shop/things'],
  ['/', 'https://api.example.com', 'https://api.example.com/things'],
  ['https://old.example.com/v1', 'https://new.example.com', 'https://new.example.com/things'],
])('the server %s with --server %s is %s', async (url, server, expected) => {
  const request = await requestOf({ ...withOperation({}), servers: [{ url }] }, {}, { server });
  expect(request.url.href).toBe(expected);
});

test('an operation whose own server has no whole address is left out alone', async () => {
  const paths = { '/a': { get: { servers: [{ url: '/uploads' }] } }, '/b': { get: {} } };
  const { tools, skipped } = await importOpenApi({ ...document, paths });
  expect(tools.map(({ name }) => name)).toEqual(['things.get__b']);
  expect(skipped[0]?.reason).toContain('"/uploads"');
  const withoutServer = {
    ...document,
    paths: { '/b': { get: {} } },
    servers: [{ url: 'https://{region}.example.com' }],
  };
  await expect(importOpenApi(withoutServer)).rejects.toMatchObject({ code: 'CONTRACT_INVALID' });
});

test.each([
  ['text/plain', '?f=a'],
  ['application/json', '?f=%22a%22'],
  ['application/problem+JSON', '?f=%22a%22'],
])('a parameter whose content is %s is written as such', async (type, expected) => {
  const parameters = [{ name: 'f', in: 'query', content: { [type]: { schema: { type: 'string' } } } }];
  expect((await requestOf(withOperation({ parameters }), { f: 'a' })).url.search).toBe(expected);
});

test.each([
  [{ name: 'f', in: 'query', content: { 'application/xml': {} } }, 'application/xml'],
  [{ name: 'f', in: 'querystring', content: {} }, 'querystring'],
  [{ name: 'f', in: 'header', explode: true, schema: { $ref: '#/components/schemas/Place' } }, 'style simple'],
])('a parameter that no connector can write is named: %j', async (parameter, reason) => {
  const components = { schemas: { Place: place } };
  const { skipped } = await importOpenApi({ ...document, ...withOperation({ parameters: [parameter] }), components });
  expect(skipped[0]?.reason).toContain(reason);
});

const transportHeaders = ['Host', 'content-length', 'Transfer-Encoding', 'Connection', 'Proxy-Authorization', 'TE'];
test.each(transportHeaders)('no parameter and no declaration sets the header %s', async (name) => {
  const parameters = [{ name, in: 'header', required: true, schema: { type: 'string' } }];
  const { tools } = await importOpenApi({ ...document, ...withOperation({ parameters }) });
  expect(tools[0]?.spec.inputSchema).toMatchObject({ properties: {} });
  const connector = { method: 'GET', url: 'https://api.example.com/things' };
  const declarations = [
    [{ headers: { [name]: 'x' } }, ['headers', name]],
    [{ arguments: { p: { in: 'header', name } } }, ['arguments', 'p']],
    [{ idempotencyHeader: name }, ['idempotencyHeader']],
  ] as const;
  for (const [declaration, path] of declarations) {
    const { error } = connectorSchema.safeParse({ ...connector, ...declaration });
    expect(error?.issues).toContainEqual(expect.objectContaining({ path, message: expect.stringContaining(name) }));
  }
});

test('operations without a usable ID have the name of their method and path, and further methods are named', async () => {
  const paths = {
    '/a': { get: { operationId: '日本' }, additionalOperations: { COPY: {} } },
    '/b': { get: { operationId: '' } },
  };
  const { tools, skipped } = await importOpenApi({ ...document, openapi: 3.2, paths });
  expect(tools.map(({ name }) => name)).toEqual(['things.get__a', 'things.get__b']);
  expect(skipped).toEqual([{ operation: 'COPY /a', reason: 'its method cannot be called' }]);
});

const NOWHERE = { $ref: '#/components/things/Missing' };
const jsonBody = (schema: object) => ({ requestBody: { required: true, content: { 'application/json': { schema } } } });

test.each([
  ['a path', { paths: { '/things': NOWHERE } }],
  ['a parameter', withOperation({ parameters: [NOWHERE] })],
  ['a body', withOperation({ requestBody: NOWHERE }, 'post')],
  ['a media type', withOperation({ requestBody: { content: { 'application/json': NOWHERE } } }, 'post')],
])('%s whose reference leads nowhere is left out and named', async (_what, changes) => {
  const { tools, skipped } = await importOpenApi({ ...document, ...changes });
  expect(tools).toEqual([]);
  expect(skipped[0]?.reason).toContain('its reference #/components/things/Missing cannot be followed');
});

test('a schema whose reference leads nowhere accepts anything, and the change is reported', async () => {
  const schema = { type: 'object', properties: { a: { $ref: '#/components/schemas/Missing' } } };
  const { tools } = await importOpenApi({ ...document, ...withOperation(jsonBody(schema), 'post') });
  expect(tools[0]?.changes.join()).toContain('$ref dropped, "#/$defs/Missing" cannot be followed');
});

test('a component that nothing fits stays one, and one that anything fits as well', async () => {
  const refer = (name: string) => ({ $ref: `#/components/schemas/${name}` });
  const body = jsonBody({ type: 'object', properties: { no: refer('No'), any: refer('Any') } });
  const components = { schemas: { No: false, Any: true } };
  const { tools } = await importOpenApi({ ...document, ...withOperation(body, 'post'), components });
  const check = compileSchema(tools[0]?.spec.inputSchema ?? {});
  expect([check({ body: { any: 1 } }).length, check({ body: { no: 1 } }).length > 0]).toEqual([0, true]);
});

test('what is nested too deep accepts anything, and the change is reported', async () => {
  const schema = Array.from({ length: 40 }).reduce<object>((a) => ({ type: 'object', properties: { a } }), items);
  const { tools } = await importOpenApi({ ...document, ...withOperation(jsonBody(schema), 'post') });
  expect(tools[0]?.changes.join()).toContain('properties.a: no schema, accepts anything');
});

test.each([
  ['Application/X-WWW-Form-Urlencoded', 'x=1'],
  ['APPLICATION/JSON', '{"x":1}'],
])('a body of the type %s is written by it', async (type, expected) => {
  const requestBody = { content: { [type]: { schema: place } } };
  expect((await requestOf(withOperation({ requestBody }, 'post'), { body: { x: 1 } })).body).toBe(expected);
});

test('a body of a sequence of values is left out, because a connector sends one value', async () => {
  const requestBody = { content: { 'application/json-seq': { itemSchema: place } } };
  const { skipped } = await importOpenApi({ ...document, openapi: '3.2.0', ...withOperation({ requestBody }, 'post') });
  expect(skipped[0]?.reason).toBe('its body is of the type application/json-seq');
});

test('a media type by reference has its schema', async () => {
  const mediaTypes = { Thing: { schema: { type: 'object', required: ['x'] } } };
  const requestBody = { content: { 'application/json': { $ref: '#/components/mediaTypes/Thing' } } };
  const { tools } = await importOpenApi({
    ...document,
    openapi: '3.2.0',
    ...withOperation({ requestBody }, 'post'),
    components: { mediaTypes },
  });
  expect(tools[0]?.spec.inputSchema).toMatchObject({ properties: { body: { required: ['x'] } } });
});

const base = { type: 'object', required: ['id'], properties: { id: { $ref: '#/components/schemas/Id' } } };
test.each([
  ['its own reference', { ...base, required: ['id', 'x'] }],
  ['what it extends', { allOf: [{ $ref: '#/components/schemas/Base' }], required: ['id', 'x'] }],
  ['what a part of it extends', { allOf: [{ $ref: '#/components/schemas/Base' }, { required: ['id', 'x'] }] }],
  ['a part of it', { allOf: [base], required: ['id', 'x'] }],
])('what only answers hold is not asked for where it is known by %s', async (_what, schema) => {
  const components = { schemas: { Id: { type: 'string', readOnly: true }, Base: base } };
  const { tools } = await importOpenApi({ ...document, ...withOperation(jsonBody(schema), 'post'), components });
  const validate = compileSchema(tools[0]?.spec.inputSchema as JsonSchema);
  expect(validate({ body: { x: 1 } })).toEqual([]);
  expect(validate({ body: {} })).toHaveLength(1);
});

test.each([
  ['3.0.3', 'get', ''],
  ['3.1.0', 'get', 'it has a body, which GET cannot send'],
  ['3.2.0', 'head', 'it has a body, which HEAD cannot send'],
  ['3.1.0', 'delete', ''],
])('in OpenAPI %s a body of %s is ignored or refused by its rules: %j', async (openapi, method, reason) => {
  const { tools, skipped } = await importOpenApi({ ...document, openapi, ...withOperation(jsonBody({}), method) });
  expect(skipped.map((each) => each.reason)).toEqual(reason === '' ? [] : [reason]);
  if (openapi === '3.0.3') expect(tools[0]?.spec.inputSchema['properties']).toEqual({});
});

const full = {
  openapi: '3.1.0',
  info: { title: 'Things', version: '1.2.3' },
  servers: [{ url: 'https://{region}.example.com', variables: { region: { default: 'eu' } } }],
  security: [{ key: [] }, { query: [] }, { basic: [] }, { login: [] }],
  tags: [{ name: 'a' }],
  components: {
    securitySchemes: {
      key: { type: 'apiKey', in: 'header', name: 'X-Key' },
      query: { type: 'apiKey', in: 'query', name: 'key' },
      basic: { type: 'http', scheme: 'basic' },
      login: { type: 'oauth2', flows: {} },
    },
    schemas: {
      Pet: {
        type: 'object',
        description: 'A pet',
        discriminator: { propertyName: 'kind', mapping: { c: '#/components/schemas/Cat' }, defaultMapping: 'Cat' },
        oneOf: [{ $ref: '#/components/schemas/Cat' }, { $ref: '#/components/schemas/Dog' }],
      },
      Cat: {
        type: ['object', 'null'],
        required: ['kind'],
        properties: {
          kind: { enum: ['c'] },
          age: { type: 'integer', format: 'int32', minimum: 1, exclusiveMinimum: true },
        },
      },
      Dog: {
        allOf: [{ $ref: '#/components/schemas/Cat' }],
        properties: { kind: { const: 'd' }, tag: { type: 'string', pattern: 'a', readOnly: true, nullable: true } },
      },
    },
  },
  paths: {
    '/pets/{id}?v={id}': {
      parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
      additionalOperations: { COPY: {} },
      post: {
        operationId: 'makePet',
        tags: ['a'],
        summary: 'Makes a pet',
        description: 'Makes a pet.',
        security: [{ query: [] }, { login: [] }, { basic: [] }],
        servers: [{ url: 'https://pets.example.com' }],
        parameters: [
          { name: 'tags', in: 'query', style: 'form', explode: false, description: 'Tags', schema: items },
          { name: 'f', in: 'query', content: { 'application/json': { schema: { type: 'string' } } } },
          { name: 'h', in: 'header', schema: { type: 'string' } },
        ],
        requestBody: {
          required: true,
          description: 'The pet',
          content: {
            'application/x-www-form-urlencoded': {
              schema: { $ref: '#/components/schemas/Pet' },
              encoding: { tags: { style: 'form', explode: true }, kind: { contentType: 'application/json' } },
            },
          },
        },
      },
    },
  },
};

test('a document with any value at any place is imported, or refused by what is wrong with it', async () => {
  const refusals = [...withOddParts(full)].map((odd) => importOpenApi(odd).catch(({ name }: Error) => name));
  for (const refusal of await Promise.all(refusals)) if (typeof refusal === 'string') expect(refusal).toBe('PawlError');
});

describe('a document of several files', () => {
  const elsewhere = { $ref: 'resources/things.yml' };
  const documentOf = (paths: object) => ({ ...document, paths });

  test('its operations that are elsewhere are left out, and those within it are followed', async () => {
    const get = { operationId: 'listThings', parameters: [{ name: 'kind', in: 'query', schema: { type: 'string' } }] };
    const paths = {
      '/things': { get, post: elsewhere, put: { $ref: '#/paths/~1things/get', operationId: 'putThings' } },
    };
    const { tools, skipped } = await importOpenApi(documentOf(paths));
    expect(tools.map(({ name, spec }) => [name, Object.keys(spec.inputSchema['properties'] as object)])).toEqual([
      ['things.listThings', ['kind']],
      ['things.putThings', ['kind']],
    ]);
    const reason = 'its reference resources/things.yml leads to another document';
    expect(skipped).toEqual([{ operation: 'POST /things', reason }]);
  });

  test.each([
    ['parameters', { get: { parameters: elsewhere } }, 'its parameters are no list'],
    [
      'content',
      { post: { requestBody: { content: elsewhere } } },
      'its reference resources/things.yml leads to another document',
    ],
  ])('an operation whose %s are elsewhere is left out', async (_what, item, reason) => {
    const { tools, skipped } = await importOpenApi(documentOf({ '/things': item }));
    expect(tools).toEqual([]);
    expect(skipped.map((each) => each.reason)).toEqual([reason]);
  });

  test('a document whose paths are elsewhere is refused', async () => {
    await expect(importOpenApi(documentOf(elsewhere))).rejects.toThrow(
      'The document has no paths: its reference resources/things.yml leads to another document.',
    );
  });
});

async function bodySchemaOf(schema: object): Promise<JsonSchema> {
  const requestBody = { content: { 'application/json': { schema } } };
  const { tools } = await importOpenApi({ ...document, ...withOperation({ requestBody }, 'post') });
  return tools[0]?.spec.inputSchema as JsonSchema;
}

test.each([
  [{ type: 'string', enum: [3, 4.1, 'x'] }, '4.1'],
  [{ type: ['string', 'null'], enum: [true, null] }, 'true'],
  [{ type: 'string', const: 3 }, '3'],
])('texts that YAML read as numbers or booleans are texts: %j takes %j', async (schema, value) => {
  const check = compileSchema(await bodySchemaOf(schema));
  expect(check({ body: value })).toEqual([]);
  expect(check({ body: 'other' })).not.toEqual([]);
});

test('a value that fits several alternatives of oneOf is taken, as by the service', async () => {
  const credentials = { type: 'object', properties: { credentials: { type: 'string' } } };
  const profile = { type: 'object', properties: { profile: { type: 'object' } } };
  const check = compileSchema(await bodySchemaOf({ oneOf: [credentials, profile] }));
  expect(check({ body: { profile: { name: 'Ada' } } })).toEqual([]);
  expect(check({ body: { profile: 1, credentials: 2 } })).not.toEqual([]);
});
