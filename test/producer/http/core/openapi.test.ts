import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { startRig } from '../rig.ts';

test('/openapi.json and docs/http.md describe the same routes, and each of them is there', async () => {
  const { ask } = await startRig();
  const { body } = await ask('/openapi.json');
  const described = Object.entries(body.paths).flatMap(([path, methods]) =>
    Object.keys(methods as object).map((method) => `${method.toUpperCase()} ${path}`),
  );
  const page = readFileSync(new URL('../../../../docs/http.md', import.meta.url), 'utf8');
  const documented = [...page.matchAll(/^\| `(GET|POST|PUT|PATCH|DELETE) (\/[^`]*)` \|/gm)].map(
    ([, method, path]) => `${method} ${path}`,
  );
  expect(described.sort()).toEqual(documented.sort());
  for (const operation of described) {
    const [method = '', path = ''] = operation.split(' ');
    const { status, body: answer } = await ask(path.replaceAll(/\{\w+\}/g, 'x'), { method });
    expect(status === 405 || /There is no route/.test(answer?.error?.message), operation).toBe(false);
  }
  expect(body.paths['/v1/calls'].post.parameters).toMatchObject([
    { name: 'wait', in: 'query' },
    { name: 'startAfterMs', in: 'query' },
    { name: 'startAt', in: 'query' },
    { name: 'idempotency-key', in: 'header' },
    { name: 'traceparent', in: 'header' },
  ]);
});

test('/openapi.json has all that a generated client needs: names, parameter types and responses', async () => {
  const { ask } = await startRig();
  const { body } = await ask('/openapi.json');
  const operations = Object.values<object>(body.paths).flatMap((methods) => Object.values(methods));
  const names = operations.map(({ operationId }) => operationId as string);
  expect(names.every((name) => /^[a-z][A-Za-z]+$/.test(name))).toBe(true);
  expect(new Set(names).size).toBe(names.length);
  const withoutBody = operations
    .flatMap(({ operationId, responses }) =>
      Object.entries<{ content?: object }>(responses).map((each) => [operationId, ...each]),
    )
    .filter(([_name, status, { content }]) => content === undefined && status !== '204');
  expect(withoutBody).toEqual([]);
  const { '/v1/calls': calls, '/v1/calls/{callId}/events': events } = body.paths;
  expect(calls.post.parameters[0].schema).toEqual({
    type: 'integer',
    minimum: 0,
    description: 'milliseconds; default: 30000, or 0 for a delayed call; larger values count as 300000.',
  });
  expect(Object.keys(events.get.responses[200].content)).toEqual(['text/event-stream']);
  // A client that is made of the document would not send such a member.
  expect(JSON.stringify(body)).not.toContain('"readOnly"');
});
