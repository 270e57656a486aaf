import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect, test } from 'vitest';
import { importOpenApi } from '../../../src/shared/connectors/openapi-import.ts';
import { contentOf, startFleet } from '../../helpers/fleet.ts';
import { sendJson, startTestService } from './service.ts';

const require = createRequire(import.meta.url);

/** The API of stapi.co, as its project publishes it. */
const starTrek = JSON.parse(readFileSync(require.resolve('@readme/oas-examples/3.0/json/star-trek.json'), 'utf8'));

test('a public document of 120 operations is imported, and every one of its tools calls what it describes (I8)', async () => {
  const service = await startTestService(({ method, url, body }, response) =>
    sendJson(response, { method, url, body }),
  );
  const { tools, skipped } = await importOpenApi(starTrek, { namespace: 'trek', server: service.url });
  expect({ tools: tools.length, skipped }).toEqual({ tools: 120, skipped: [] });
  const { pawl, session } = await startFleet({
    tools: [],
    concurrency: 16,
    settings: { allowedHosts: [service.host] },
  });
  await Promise.all(tools.map(({ name, spec }) => pawl.registry.put(name, spec)));
  const results = await Promise.all(
    tools.map(async ({ name, spec }) => {
      const { required = [], properties = {} } = spec.inputSchema as {
        required?: string[];
        properties?: Record<string, { type?: string }>;
      };
      const params = Object.fromEntries(required.map((key) => [key, exampleOf(properties[key]?.type)]));
      return contentOf(await session.call(name.slice('trek.'.length), params, { namespace: 'trek' })) as {
        method: string;
        url: string;
      };
    }),
  );
  const asked = results.map(({ method, url }) => `${method} ${new URL(url, 'http://x').pathname}`);
  const described = Object.entries(starTrek.paths as Record<string, object>).flatMap(([path, item]) =>
    Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`),
  );
  expect(asked.sort()).toEqual(described.sort());
});

const odd = (paths: object) =>
  importOpenApi({
    openapi: '3.1.0',
    info: { title: 'Odd', version: '1.0.0' },
    servers: [{ url: 'https://odd.example.com' }],
    paths: { '/good': { get: { operationId: 'good', parameters: [{ name: 'q', in: 'query' }] } }, ...paths },
    components: {
      securitySchemes: { digest: { type: 'http', scheme: 'digest' } },
      schemas: { Pet: { type: 'object', properties: { tag: { enum: ['cat', 'dog'] }, tags: { items: TAG } } } },
    },
  });
const TAG = { $ref: '#/components/schemas/Pet/properties/tag' };

test.each([
  ['/elsewhere', { $ref: './paths/elsewhere.yaml' }, 'its reference ./paths/elsewhere.yaml leads to another document'],
  ['/digest', { get: { security: [{ digest: [] }] } }, 'it is secured by digest, which no header can say'],
])(
  'an operation that cannot be declared, such as %s, is skipped with the reason, and the others are imported',
  async (path, item, reason) => {
    const { tools, skipped } = await odd({ [path]: item });
    expect(tools[0]).toMatchObject({ name: 'odd.good' });
    expect(skipped).toEqual([{ operation: expect.stringContaining(path), reason: expect.stringContaining(reason) }]);
  },
);

test('a reference is followed into a list, and to a part of a schema that refers to itself', async () => {
  const body = { requestBody: { content: { 'application/json': { schema: { $ref: '#/components/schemas/Pet' } } } } };
  const { tools, skipped } = await odd({
    '/again': { get: { operationId: 'again', parameters: [{ $ref: '#/paths/~1good/get/parameters/0' }] } },
    '/tag': { get: { operationId: 'tag', parameters: [{ name: 'tag', in: 'query', schema: TAG }] } },
    '/pet': { post: { operationId: 'pet', ...body } },
  });
  expect(skipped).toEqual([]);
  const schemaOf = (name: string) => tools.find((tool) => tool.name === `odd.${name}`)?.spec.inputSchema;
  expect(schemaOf('again')).toMatchObject({ properties: { q: { type: 'string' } } });
  const [name = ''] = Object.keys(schemaOf('tag')?.['$defs'] ?? {});
  expect(name).toMatch(/^Pet_properties_tag_[\w-]{8}$/);
  const definition = { [name]: { enum: ['cat', 'dog'] } };
  expect(schemaOf('tag')).toMatchObject({ properties: { tag: { $ref: `#/$defs/${name}` } }, $defs: definition });
  expect(schemaOf('pet')).toMatchObject({ $defs: definition });
});

function exampleOf(type: string | undefined): unknown {
  return type === 'integer' || type === 'number' ? 1 : type === 'boolean' ? true : type === 'string' ? 'x' : {};
}
