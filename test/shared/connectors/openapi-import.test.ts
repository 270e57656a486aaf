import { describe, expect, test } from 'vitest';
import { importOpenApi } from '../../../src/shared/connectors/openapi-import.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { sanitizeSchema } from '../../../src/shared/schema/schema-sanitize.ts';

const document = (paths: object, more: object = {}) => ({
  openapi: '3.0.3',
  info: { title: 'The Shop', version: '2.1.0' },
  servers: [{ url: 'https://{region}.shop.example.com/v1/', variables: { region: { default: 'eu' } } }],
  paths,
  ...more,
});

const only = async (paths: object, more: object = {}, options = {}) => {
  const { tools, skipped } = await importOpenApi(document(paths, more), options);
  return { ...tools[0], skipped };
};

describe('an OpenAPI document as connectors (I8)', () => {
  test('an operation is one tool, with its parameters where the service wants them', async () => {
    const { name, spec } = await only({
      '/items/{item-id}': {
        parameters: [{ name: 'item-id', in: 'path', required: true, schema: { type: 'integer' } }],
        get: {
          operationId: 'getItem',
          summary: 'One item.',
          parameters: [
            {
              name: 'filter[colour]',
              in: 'query',
              explode: false,
              schema: { type: 'array', items: { type: 'string' } },
            },
            { name: 'X-Region', in: 'header', schema: { type: 'string', nullable: true } },
          ],
        },
      },
    });
    expect(name).toBe('the_shop.getItem');
    expect(spec).toMatchObject({
      kind: 'http',
      version: '2.1.0',
      description: 'One item.',
      inputSchema: {
        required: ['item-id'],
        properties: {
          'item-id': { type: 'integer' },
          filter_colour: { type: 'array' },
          'X-Region': { type: ['string', 'null'] },
        },
      },
      routing: {
        method: 'GET',
        url: 'https://eu.shop.example.com/v1/items/{item-id}',
        arguments: {
          filter_colour: { in: 'query', name: 'filter[colour]', style: 'comma' },
          'X-Region': { in: 'header' },
        },
      },
    });
  });

  test.each([
    [{ schema: { type: 'array' } }, 'repeat'],
    [{ schema: { type: ['array', 'object'] } }, 'members'],
    [{ schema: { $ref: '#/components/schemas/A' } }, 'members'],
    [{ schema: { type: 'object' }, explode: false }, 'comma'],
    [{ schema: { type: 'array' }, style: 'spaceDelimited' }, 'space'],
    [{ schema: { type: 'array' }, style: 'pipeDelimited', explode: false }, 'pipe'],
    [{ schema: { type: 'array' }, style: 'pipeDelimited', explode: true }, 'repeat'],
    [{ schema: { type: 'object' }, style: 'deepObject' }, 'deep'],
    [{ content: { 'application/json': { schema: { type: 'object' } } } }, 'json'],
    [{ schema: { type: 'array' }, in: 'header' }, 'comma'],
    [{ content: { 'application/json': {} }, in: 'header' }, 'json'],
  ])('the parameter %j is written in the style %s', async (parameter, style) => {
    const { spec } = await only({ '/a': { get: { parameters: [{ name: 'a', in: 'query', ...parameter }] } } });
    expect(spec).toMatchObject({ routing: { arguments: { a: { style } } } });
  });

  test('a body is said to be of the media type that the document names', async () => {
    const typeOf = async (...types: string[]) => {
      const content = Object.fromEntries(types.map((type) => [type, { schema: { type: 'string' } }]));
      const { spec } = await only({ '/a': { patch: { requestBody: { content } } } });
      const { body, headers } = (spec as { routing: { body: string; headers?: object } }).routing;
      return [body, headers];
    };
    expect(await typeOf('application/vnd.api+json')).toEqual(['json', { 'content-type': 'application/vnd.api+json' }]);
    expect(await typeOf('application/merge-patch+json', 'application/json')).toEqual(['json', undefined]);
    expect(await typeOf('application/json-patch+json')).toEqual([
      'json',
      { 'content-type': 'application/json-patch+json' },
    ]);
    expect(await typeOf('*/*')).toEqual(['json', undefined]);
    expect(await typeOf('text/csv')).toEqual(['text', { 'content-type': 'text/csv; charset=utf-8' }]);
    expect(await typeOf('text/plain')).toEqual(['text', undefined]);
  });

  test('credentials stand beside the media type of a body; a form whose members are deep is one', async () => {
    const { spec } = await only(
      {
        '/a': {
          post: {
            requestBody: { content: { 'application/vnd.api+json': {} } },
            security: [{ key: [] }],
          },
        },
      },
      { components: { securitySchemes: { key: { type: 'apiKey', in: 'header', name: 'X-Key' } } } },
    );
    expect(spec).toMatchObject({
      routing: { headers: { 'content-type': 'application/vnd.api+json', 'X-Key': '{secret:key}' } },
    });
    const encoding = { metadata: { style: 'deepObject', explode: true } };
    const form = await only({
      '/a': { post: { requestBody: { content: { 'application/x-www-form-urlencoded': { encoding } } } } },
    });
    expect(form.spec).toMatchObject({ routing: { body: 'form', formStyles: { metadata: 'deep' } } });
  });

  test('references are followed within the document, also in circles; what only answers hold is not sent', async () => {
    const { spec } = await only(
      { '/items': { post: { operationId: 'add', requestBody: { $ref: '#/components/requestBodies/Item' } } } },
      {
        components: {
          requestBodies: {
            Item: {
              required: true,
              content: { 'application/json': { schema: { $ref: '#/components/schemas/Item' } } },
            },
          },
          schemas: {
            Item: {
              type: 'object',
              required: ['id', 'name'],
              properties: {
                id: { type: 'string', readOnly: true },
                name: { type: 'string', example: 'box' },
                price: { type: 'number', minimum: 0, exclusiveMinimum: true },
                parts: { type: 'array', items: { $ref: '#/components/schemas/Item' } },
                within: { $ref: '#/components/schemas/Item', nullable: true, description: 'Its box.' },
              },
            },
          },
        },
      },
    );
    expect(spec?.inputSchema).toEqual({
      type: 'object',
      properties: { body: { $ref: '#/$defs/Item' } },
      required: ['body'],
      additionalProperties: false,
      $defs: {
        Item: {
          type: 'object',
          required: ['name'],
          properties: {
            name: { type: 'string' },
            price: { type: 'number', exclusiveMinimum: 0 },
            parts: { type: 'array', items: { $ref: '#/$defs/Item' } },
            within: { anyOf: [{ $ref: '#/$defs/Item' }, { type: 'null' }], description: 'Its box.' },
          },
        },
      },
    });
    expect(spec).toMatchObject({ routing: { body: 'json', bodyFrom: 'body' } });
  });

  test.each([
    ['用户', '订单'],
    ['Page<Pet>', 'Page«Pet»'],
    ['an item', 'an_item'],
  ])('schemas whose names differ only in characters that are replaced stay two: %s, %s', async (one, other) => {
    const at = (name: string) => ({ $ref: `#/components/schemas/${encodeURIComponent(name)}` });
    const schema = { type: 'object', properties: { one: at(one), other: at(other) } };
    const { spec } = await only(
      { '/items': { post: { requestBody: { required: true, content: { 'application/json': { schema } } } } } },
      { components: { schemas: { [one]: { type: 'string' }, [other]: { type: 'integer' } } } },
    );
    const validate = compileSchema(sanitizeSchema(spec?.inputSchema).schema);
    expect(validate({ body: { one: 'a', other: 1 } })).toEqual([]);
    expect(validate({ body: { one: 1, other: 1 } })).not.toEqual([]);
    expect(validate({ body: { one: 'a', other: 'a' } })).not.toEqual([]);
  });

  test('what only answers hold is not asked for in a body that is described in place, at any depth', async () => {
    const item = {
      type: 'object',
      required: ['id', 'name'],
      properties: { id: { type: 'string', readOnly: true }, name: { type: 'string' } },
    };
    const schema = { type: 'object', properties: { items: { type: 'array', items: item } }, if: { nullable: true } };
    const { spec } = await only({
      '/items': { post: { requestBody: { content: { 'application/json': { schema } } } } },
    });
    const sent = { type: 'object', required: ['name'], properties: { name: { type: 'string' } } };
    expect(spec?.inputSchema['properties']).toEqual({
      body: {
        type: 'object',
        properties: { items: { type: 'array', items: sent } },
        if: { anyOf: [{}, { type: 'null' }] },
      },
    });
  });

  test('parameters of a path stay apart, whatever their names have in common', async () => {
    const parameters = ['_id', 'id'].map((name) => ({ name, in: 'path', required: true }));
    const { spec } = await only({ '/of/{_id}/and/{id}': { get: { parameters } } });
    expect(spec).toMatchObject({ routing: { url: expect.stringMatching(/\/of\/\{id\}\/and\/\{id_2\}$/) } });
  });

  test('of several ways to authenticate the first that can be said is taken', async () => {
    const { spec } = await only(
      { '/items': { get: { security: [{ session: [] }, { token: [] }] } } },
      {
        components: {
          securitySchemes: {
            session: { type: 'apiKey', in: 'cookie', name: 'sid' },
            token: { type: 'http', scheme: 'bearer' },
          },
        },
      },
    );
    expect(spec).toMatchObject({
      routing: {
        headers: { authorization: 'Bearer {secret:token}' },
        secrets: { token: { env: 'PAWL_SECRET_TOKEN' } },
      },
    });
  });

  test('of several ways to authenticate, and of one that may be left out, that one is taken whose secret is named', async () => {
    const components = {
      securitySchemes: {
        key: { type: 'apiKey', in: 'header', name: 'X-Key' },
        token: { type: 'http', scheme: 'bearer' },
      },
    };
    const paths = {
      '/several': { get: { security: [{ key: [] }, { token: [] }] } },
      '/optional': { get: { security: [{}, { token: [] }] } },
      '/other': { get: { security: [{ key: [] }, {}] } },
    };
    const { tools } = await importOpenApi(document(paths, { components }), {
      secrets: { token: { env: 'SHOP_TOKEN' } },
    });
    const named = { token: { env: 'SHOP_TOKEN' } };
    expect(tools.map(({ spec }) => (spec.kind === 'http' ? spec.routing.secrets : 'none'))).toEqual([
      named,
      named,
      undefined,
    ]);
  });

  test('secrets are named, and never in the document', async () => {
    const components = {
      securitySchemes: {
        key: { type: 'apiKey', in: 'header', name: 'X-Key' },
        open: { type: 'http', scheme: 'bearer' },
      },
    };
    const paths = { '/a': { get: {} }, '/b': { get: { security: [{ open: [] }] } }, '/c': { get: { security: [] } } };
    const { tools } = await importOpenApi(document(paths, { components, security: [{ key: [] }] }), {
      secrets: { open: { file: '/run/x' } },
    });
    expect(tools.map(({ spec }) => (spec.kind === 'http' ? [spec.routing.headers, spec.routing.secrets] : []))).toEqual(
      [
        [{ 'X-Key': '{secret:key}' }, { key: { env: 'PAWL_SECRET_KEY' } }],
        [{ authorization: 'Bearer {secret:open}' }, { open: { file: '/run/x' } }],
        [undefined, undefined],
      ],
    );
  });

  test('a secret for a scheme that the document has not is refused: no tool would use it', async () => {
    const components = { securitySchemes: { key: { type: 'apiKey', in: 'header', name: 'X-Key' } } };
    const given = document({ '/a': { get: {} } }, { components });
    await expect(importOpenApi(given, { secrets: { kye: { env: 'PAWL_SECRET_KEY' } } })).rejects.toThrow(
      expect.objectContaining({ message: 'The document has no security scheme "kye"; it has key.' }),
    );
  });

  test.each([
    ['3.0.4', 1],
    ['3.1.2', 1],
    ['3.2.0', 1],
    ['4.0.0', 'of version 3.0, 3.1 or 3.2 (openapi: "4.0.0")'],
  ])('a document of version %s', async (openapi, expected) => {
    const given = { ...document({ '/a': { get: {} } }), openapi };
    if (typeof expected === 'number') expect((await importOpenApi(given)).tools).toHaveLength(expected);
    else await expect(importOpenApi(given)).rejects.toThrow(expected);
  });

  test('a document of Swagger is refused with how to convert it', async () => {
    await expect(importOpenApi({ swagger: '2.0', paths: {} })).rejects.toThrow(/swagger: "2\.0"; convert it first/);
  });

  test('is selected by tag, by operation, and by whether it reads', async () => {
    const paths = {
      '/a': { get: { operationId: 'a', tags: ['x'] }, delete: { operationId: 'deleteA', tags: ['x'] } },
      '/b': { get: { operationId: 'b', tags: ['y'] } },
    };
    const names = async (options: object) =>
      (await importOpenApi(document(paths), options)).tools.map(({ name }) => name.split('.')[1]);
    expect(await names({})).toEqual(['a', 'deleteA', 'b']);
    expect(await names({ tags: ['x'] })).toEqual(['a', 'deleteA']);
    expect(await names({ readOnly: true })).toEqual(['a', 'b']);
    expect(await names({ operations: ['deleteA', 'GET /b'] })).toEqual(['deleteA', 'b']);
    await expect(names({ operations: ['a', 'deletA'] })).rejects.toThrow('no operation "deletA"; did you mean deleteA');
    await expect(names({ tags: ['x', 'zebras'] })).rejects.toThrow('no tag "zebras"');
  });

  test('what no connector can say is left out with its reason; the rest is imported', async () => {
    const { tools, skipped } = await importOpenApi(
      document({
        '/file': {
          post: { operationId: 'upload', requestBody: { required: true, content: { 'multipart/form-data': {} } } },
          put: { operationId: 'replace', requestBody: { content: { 'multipart/form-data': {} } } },
        },
        '/far': { get: { operationId: 'far', parameters: [{ $ref: 'https://example.com/p.json' }] } },
        '/cookie': { get: { operationId: 'cookie', parameters: [{ name: 'sid', in: 'cookie', required: true }] } },
        '/odd': { get: { operationId: 'odd', parameters: [{ name: 'a', in: 'body' }] } },
        '/{who}': { get: { operationId: 'nobody' } },
        '/{matrix}': {
          get: { operationId: 'matrix', parameters: [{ name: 'matrix', in: 'path', style: 'matrix' }] },
        },
        '/broken': { get: { operationId: 'broken', parameters: [{ $ref: '#/components/parameters/%zz' }] } },
        '/fine': { get: { operationId: 'fine' } },
      }),
    );
    expect(tools).toHaveLength(1);
    expect(skipped.map(({ operation }) => operation)).toEqual([
      'upload',
      'replace',
      'far',
      'cookie',
      'odd',
      'nobody',
      'matrix',
      'broken',
    ]);
  });

  test.each([
    ['another format', { swagger: '2.0' }],
    ['nothing', undefined],
    ['no server', { openapi: '3.1.0', info: {}, paths: { '/a': { get: {} } } }],
  ])('%s is refused', async (_what, given) => {
    await expect(importOpenApi(given)).rejects.toThrow(expect.objectContaining({ code: 'CONTRACT_INVALID' }));
  });
});
