import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect, test } from 'vitest';
import { importOpenApi } from '../../../src/shared/openapi-import.ts';
import { contentOf, startFleet } from '../../producer/fleet.ts';
import { sendJson, startTestService } from './service.ts';

const require = createRequire(import.meta.url);

/** The API of stapi.co, as its project publishes it. */
const starTrek = JSON.parse(readFileSync(require.resolve('@readme/oas-examples/3.0/json/star-trek.json'), 'utf8'));

test('a public document of 120 operations is imported, and every one of its tools calls what it describes (I8)', async () => {
  const service = await startTestService(({ method, url, body }, response) =>
    sendJson(response, { method, url, body }),
  );
  const { tools, skipped } = importOpenApi(starTrek, { namespace: 'trek', server: service.url });
  expect({ tools: tools.length, skipped }).toEqual({ tools: 120, skipped: [] });
  const { pawl, session } = await startFleet({
    tools: [],
    concurrency: 16,
    settings: { allowedHosts: [service.host] },
  });
  for (const { name, spec } of tools) await pawl.registry.put(name, spec);
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

function exampleOf(type: string | undefined): unknown {
  return type === 'integer' || type === 'number' ? 1 : type === 'boolean' ? true : type === 'string' ? 'x' : {};
}
