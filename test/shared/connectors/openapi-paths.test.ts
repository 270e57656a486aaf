import { describe, expect, test } from 'vitest';
import { connectorSchema } from '../../../src/shared/connectors/connector.ts';
import { connectorRequest } from '../../../src/shared/connectors/connector-request.ts';
import { importOpenApi } from '../../../src/shared/connectors/openapi-import.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';

const documentWith = (paths: object, schemas: object = {}) => ({
  openapi: '3.1.0',
  info: { title: 'Things', version: '1.0.0' },
  servers: [{ url: 'https://api.example.com/v1' }],
  paths,
  components: { schemas },
});

async function addressOf(path: string, params: Record<string, unknown>, parameters: readonly object[] = []) {
  const { tools, skipped } = await importOpenApi(documentWith({ [path]: { get: { operationId: 'one', parameters } } }));
  expect(skipped).toEqual([]);
  const routing = (tools[0]?.spec as { readonly routing?: unknown } | undefined)?.routing;
  return connectorRequest(connectorSchema.parse(routing), params).url.toString();
}

describe('a path with a query or a fragment', () => {
  const id = { name: 'id', in: 'path', required: true, schema: { type: 'string' } };
  test.each([
    ['/things?beta=true', {}, [], 'https://api.example.com/v1/things?beta=true'],
    ['/things?token=a=b==', {}, [], 'https://api.example.com/v1/things?token=a%3Db%3D%3D'],
    ['/things#all', {}, [], 'https://api.example.com/v1/things'],
    ['/things?kind=a%20b&flag#x', {}, [], 'https://api.example.com/v1/things?kind=a+b&flag='],
    ['/things/{id}?beta=true#v2', { id: '7' }, [id], 'https://api.example.com/v1/things/7?beta=true'],
    ['/things?id={id}', { id: '7' }, [id], 'https://api.example.com/v1/things?id=7'],
    [
      '/things?q={q}',
      { q: 'x' },
      [{ name: 'q', in: 'query', schema: { type: 'string' } }],
      'https://api.example.com/v1/things?q=x',
    ],
  ] as const)('%s', async (path, params, parameters, expected) => {
    expect(await addressOf(path, params, parameters)).toBe(expected);
  });

  test('does not become a part of the host, and a method that cannot be called is named', async () => {
    const { tools, skipped } = await importOpenApi(
      documentWith({ '.evil.example/things': { get: { operationId: 'one' } }, '/things': { trace: {}, query: {} } }),
    );
    expect(tools).toEqual([]);
    expect(skipped).toEqual([
      { operation: 'one', reason: 'its path does not begin with a slash' },
      { operation: 'TRACE /things', reason: 'its method cannot be called' },
      { operation: 'QUERY /things', reason: 'its method cannot be called' },
    ]);
  });

  test('names a value of its query that nothing describes', async () => {
    const { tools, skipped } = await importOpenApi(documentWith({ '/things?q={q}': { get: { operationId: 'one' } } }));
    expect(tools).toEqual([]);
    expect(skipped[0]?.reason).toContain('{q}');
  });
});

test('a recursive reference of draft 2019-09 leads to the schema that it stands in', async () => {
  const filter = {
    $recursiveAnchor: true,
    type: 'object',
    properties: { and: { type: 'array', items: { oneOf: [{ type: 'string' }, { $recursiveRef: '#' }] } } },
    additionalProperties: false,
  };
  const body = { content: { 'application/json': { schema: { $ref: '#/components/schemas/Filter' } } } };
  const { tools, skipped } = await importOpenApi(
    documentWith({ '/search': { post: { operationId: 'search', requestBody: body } } }, { Filter: filter }),
  );
  expect(skipped).toEqual([]);
  const validate = compileSchema(tools[0]?.spec.inputSchema as object as never);
  expect(validate({ body: { and: ['a', { and: ['b'] }] } })).toEqual([]);
  expect(validate({ body: { and: [{ or: [] }] } }).length).toBeGreaterThan(0);
});

test('an import shows schemas as they will be declared, and what was changed', async () => {
  const body = {
    content: { 'application/json': { schema: { type: 'object', properties: { a: { pattern: '(?=x)' } } } } },
  };
  const { tools } = await importOpenApi(documentWith({ '/a': { post: { operationId: 'a', requestBody: body } } }));
  expect(JSON.stringify(tools[0]?.spec.inputSchema)).not.toContain('(?=x)');
  expect(tools[0]?.changes.join()).toContain('pattern dropped');
});
