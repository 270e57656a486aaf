import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { DeclaredTool } from '../../../src/shared/connectors/declared-tool.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { contentOf } from '../../helpers/fleet.ts';
import { connect, type Routing, SECRET } from './http-rig.ts';
import { sendJson, startTestService } from './service.ts';

describe('the answers that a connector accepts', () => {
  test('a list, where the declared output is one; people are shown the list itself', async () => {
    const service = await startTestService((_asked, response) => sendJson(response, [{ id: 1 }, { id: 2 }]));
    const outputSchema = { type: 'array', items: { type: 'object', required: ['id'] } };
    const { session } = await connect(service, {}, { spec: { outputSchema } });
    const { output } = await session.call('ask', { id: '1' });
    expect(output).toEqual({ content: [{ id: 1 }, { id: 2 }], metadata: { tainted: true } });
  });

  test('text in the character set that it names, and never a secret, however JSON writes it', async () => {
    const secret = 'a "quoted" one';
    const service = await startTestService((asked, response) => {
      if (asked.url === '/things/json') return sendJson(response, { echo: asked.headers['x-key'] });
      response.setHeader('content-type', 'text/plain; charset="ISO-8859-1"');
      response.end(Buffer.from('caf\u00e9', 'latin1'));
    });
    const routing = { headers: { 'x-key': '{secret:api}' }, secrets: { api: { env: 'PAWL_SECRET_API' } } };
    const { session } = await connect(service, routing, { fleet: { environment: { PAWL_SECRET_API: secret } } });
    expect(contentOf(await session.call('ask', { id: 'json' }))).toEqual({ echo: '[secret]' });
    expect(contentOf(await session.call('ask', { id: 'text' }))).toBe('caf\u00e9');
  });

  test('bytes for content that is not text, whatever its type says, and text otherwise', async () => {
    const book = Buffer.from([0x50, 0x4b, 3, 4, 0xff, 0xfe]);
    const module = Buffer.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]);
    const sheet = 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet';
    const service = await startTestService(({ url }, response) => {
      if (url.endsWith('/book')) response.setHeader('content-type', sheet).end(book);
      else if (url.endsWith('/module')) response.setHeader('content-type', 'application/wasm').end(module);
      else if (url.endsWith('/untyped')) response.end(book);
      else response.setHeader('content-type', 'application/yaml').end('caf\u00e9: 1');
    });
    const { session } = await connect(service, {});
    const answered = async (id: string) => contentOf(await session.call('ask', { id }));
    expect(await answered('book')).toEqual({ mediaType: sheet, base64: book.toString('base64') });
    expect(await answered('module')).toEqual({ mediaType: 'application/wasm', base64: module.toString('base64') });
    expect(await answered('untyped')).toEqual({
      mediaType: 'application/octet-stream',
      base64: book.toString('base64'),
    });
    expect(await answered('text')).toBe('caf\u00e9: 1');
  });

  test('all digits of a whole number, as text where a number does not hold them', async () => {
    const service = await startTestService((_asked, response) => {
      const large =
        '{"id": 1234567890123456789, "ids": [-9007199254740993, 9007199254740991], "ratio": 0.12345678901234566}';
      response.setHeader('content-type', 'application/json').end(large);
    });
    const { session } = await connect(service, {});
    expect(contentOf(await session.call('ask', { id: '1' }))).toEqual({
      id: '1234567890123456789',
      ids: ['-9007199254740993', 9007199254740991],
      ratio: 0.12345678901234566,
    });
  });

  test('JSON that is labelled as plain text, where a part of it is declared', async () => {
    const service = await startTestService(({ url }, response) => {
      response.setHeader('content-type', 'text/plain').end(url.endsWith('/json') ? '{"a": 1, "b": 2}' : 'no JSON');
    });
    const { session } = await connect(service, { result: 'a' });
    expect(contentOf(await session.call('ask', { id: 'json' }))).toBe(1);
  });

  test('no secret in any form that JSON and addresses allow (R31)', async () => {
    const service = await startTestService((_asked, response) => {
      response.setHeader('content-type', 'application/json');
      response.end('{"slash":"ab\\/c~d","code":"\\u0061b/c~d","self":"https://x/?k=ab%2Fc%7Ed","deep":[{"ab/c~d":1}]}');
    });
    const routing = { headers: { 'x-key': '{secret:api}' }, secrets: { api: { env: 'PAWL_SECRET_API' } } };
    const { session } = await connect(service, routing, { fleet: { environment: { PAWL_SECRET_API: 'ab/c~d' } } });
    expect(contentOf(await session.call('ask', { id: '1' }))).toEqual({
      slash: '[secret]',
      code: '[secret]',
      self: 'https://x/?k=[secret]',
      deep: [{ '[secret]': 1 }],
    });
  });
});

describe('the requests of a connector (I8, I14)', () => {
  test('null stands in a JSON body, where it clears a field, and nowhere else', async () => {
    const service = await startTestService((_asked, response) => sendJson(response, {}));
    const inputSchema = {
      type: 'object',
      properties: { id: {}, assignee: { type: ['string', 'null'] }, filter: { type: ['string', 'null'] } },
    };
    const routing = { method: 'PATCH', arguments: { filter: { in: 'query' } } } as const;
    const { session } = await connect(service, routing, { spec: { inputSchema } });
    await session.call('ask', { id: '1', assignee: null, filter: null });
    expect(service.asked).toMatchObject([{ url: '/things/1', body: '{"assignee":null}' }]);
  });

  test('parameters go into the path, the query, headers and the body, as declared; secrets come from the worker', async () => {
    const service = await startTestService((asked, response) => sendJson(response, { echo: asked.headers['x-key'] }));
    const { session } = await connect(service, {
      method: 'POST',
      headers: { authorization: 'Bearer {secret:api}', 'x-key': '{secret:api}', 'x-trace': 'for {who}' },
      secrets: { api: { env: 'PAWL_SECRET_API' } },
      query: { fixed: 'yes', filter: 'owner:{who}' },
      arguments: {
        tags: { in: 'query', name: 'tag' },
        region: { in: 'header', name: 'X-Region' },
        limit: { in: 'query' },
      },
      idempotencyHeader: 'Idempotency-Key',
    });
    const params = { id: 'a/b?c', who: 'ada', tags: ['x', 'y'], region: 'eu', limit: 3, name: 'box', size: { cm: 4 } };
    const result = await session.call('ask', params, { idempotencyKey: 'once' });
    // A service may echo a secret, but the secret must not reach the model (R31).
    expect(contentOf(result)).toEqual({ echo: '[secret]' });
    const [asked] = service.asked;
    expect(asked).toMatchObject({ method: 'POST', body: JSON.stringify({ name: 'box', size: { cm: 4 } }) });
    expect(asked?.url).toBe('/things/a%2Fb%3Fc?tag=x&tag=y&limit=3&fixed=yes&filter=owner%3Aada');
    expect(asked?.headers).toMatchObject({
      authorization: `Bearer ${SECRET}`,
      'x-trace': 'for ada',
      'x-region': 'eu',
      'idempotency-key': 'once',
      'content-type': 'application/json',
    });
  });

  test.each([
    ['a dot segment', { id: '..' }, 'INVALID_PARAMS'],
    ['nothing for the path', {}, 'INVALID_PARAMS'],
    ['a header that ends early', { id: '1', region: 'eu\r\nx-admin: 1' }, 'INVALID_PARAMS'],
    ['a path that is not on the list (I16)', { id: 'secret-files' }, 'PERMISSION_DENIED'],
  ])('%s is refused before anything is sent', async (_what, params, code) => {
    const service = await startTestService((_asked, response) => sendJson(response, {}));
    const { session } = await connect(service, {
      arguments: { region: { in: 'header', name: 'x-region' } },
      allow: { paths: ['/things/1*', '/things/2'] },
    });
    expect((await session.call('ask', params)).error?.code).toBe(code);
    expect(service.asked).toHaveLength(0);
  });

  test.each([
    ['a variable that no configuration names', { env: 'OTHER_SECRET' }],
    ["one of Pawl's own", { env: 'PAWL_SIGNING_KEYS' }],
    ['a file', { file: '/etc/hostname' }],
    ['a program', { exec: ['/bin/cat', '/etc/hostname'] }],
  ] as const)('a worker gives out no secret but what its configuration allows: %s', async (_what, source) => {
    const service = await startTestService((_asked, response) => sendJson(response, {}));
    const { session } = await connect(
      service,
      { headers: { 'x-key': '{secret:api}' }, secrets: { api: source as { env: string } } },
      { fleet: { environment: { PAWL_SIGNING_KEYS: 'k:0123456789abcdef', OTHER_SECRET: 'x' } } },
    );
    expect((await session.call('ask', { id: '1' })).error?.code).toBe('PERMISSION_DENIED');
    expect(service.asked).toHaveLength(0);
  });

  test('with it, files and programs are asked', async () => {
    const service = await startTestService((_asked, response) => sendJson(response, {}));
    const folder = temporaryFolder();
    writeFileSync(join(folder, 'token'), 'from-a-file\n');
    const { session } = await connect(
      service,
      {
        headers: { 'x-file': '{secret:file}', 'x-program': '{secret:program}' },
        secrets: { file: { file: join(folder, 'token') }, program: { exec: ['/bin/echo', 'from-a-program'] } },
      },
      { fleet: { settings: { connectors: { secrets: { folders: [folder], programs: ['/bin/echo'] } } } } },
    );
    await session.call('ask', { id: '1' });
    expect(service.asked[0]?.headers).toMatchObject({ 'x-file': 'from-a-file', 'x-program': 'from-a-program' });
  });
});

describe('the results of a connector (I17)', () => {
  test('the declared part of it', async () => {
    const service = await startTestService((_asked, response) =>
      sendJson(response, {
        data: {
          things: [
            { name: 'a', size: 1 },
            { name: 'b', size: 2 },
          ],
        },
      }),
    );
    const { session } = await connect(service, { result: 'data.things[?size > `1`].name' });
    const result = await session.call('ask', { id: '1' });
    expect(contentOf(result)).toEqual(['b']);
  });

  test.each([
    [404, 'HTTP_404', 1],
    [400, 'HTTP_400', 1],
    [503, 'HTTP_503', 4],
    [429, 'HTTP_429', 4],
  ])('%i ends as %s after %i attempts, with what the service said', async (status, code, attempts) => {
    const service = await startTestService((_asked, response) =>
      sendJson(response, { message: 'no such thing' }, status, { 'retry-after': '0' }),
    );
    const { session } = await connect(service, {});
    const result = await session.call('ask', { id: '1' });
    expect(result.error).toMatchObject({ code, message: expect.stringContaining('no such thing') });
    expect(service.asked).toHaveLength(attempts);
  });

  test('a mutating call is not tried again after a failure that leaves its effect open', async () => {
    const service = await startTestService((_asked, response) => sendJson(response, {}, 503));
    const { session } = await connect(service, { method: 'POST' });
    await session.call('ask', { id: '1' });
    expect(service.asked).toHaveLength(1);
  });

  test('a mutating call is tried again after a 403 that says when to come back', async () => {
    const service = await startTestService((_asked, response) => sendJson(response, {}, 403, { 'retry-after': '0' }));
    const { session } = await connect(service, { method: 'POST' });
    expect((await session.call('ask', { id: '1' })).error).not.toHaveProperty('mayHaveHappened');
    expect(service.asked).toHaveLength(4);
  });

  test('an answer that is too large or mislabelled is a typed error; an accepted status is an answer', async () => {
    const service = await startTestService(({ url }, response) => {
      if (url.endsWith('/large')) response.end('x'.repeat(2_000));
      else if (url.endsWith('/broken')) response.setHeader('content-type', 'application/json').end('{');
      else if (url.endsWith('/packed')) response.setHeader('content-encoding', 'gzip').end('not packed');
      else sendJson(response, { error: 'gone' }, 410);
    });
    const { session } = await connect(service, { maxResponseBytes: 1_000, accept: [410] });
    expect((await session.call('ask', { id: 'large' })).error?.code).toBe('RESULT_TOO_LARGE');
    expect((await session.call('ask', { id: 'broken' })).error?.code).toBe('RESULT_INVALID');
    expect((await session.call('ask', { id: 'packed' })).error).toMatchObject({
      code: 'RESULT_INVALID',
      message: expect.stringContaining('labelled as compressed (gzip) and cannot be decompressed'),
    });
    expect(contentOf(await session.call('ask', { id: 'gone' }))).toEqual({ status: 410, body: { error: 'gone' } });
  });

  test('a redirect that is not followed is reported with its target, and leaves open what the request did', async () => {
    const service = await startTestService((_asked, response) => {
      response.writeHead(302, { location: '/login' }).end();
    });
    const { session } = await connect(service, { method: 'POST' });
    expect((await session.call('ask', { id: '1' })).error).toMatchObject({
      message: expect.stringContaining(`POST ${service.host}/things/1 answers 302, a redirect to /login. It may`),
      mayHaveHappened: true,
    });
  });

  test('Basic credentials are the secret itself, or built from a name and a password', async () => {
    const service = await startTestService(({ headers }, response) =>
      sendJson(response, { got: headers.authorization === `Basic ${btoa('ada:pass:word')}`, said: headers }),
    );
    const { session } = await connect(
      service,
      {
        headers: { authorization: 'Basic {secret:api}' },
        secrets: { api: { env: 'PAWL_SECRET_API' } },
      },
      { fleet: { environment: { PAWL_SECRET_API: 'ada:pass:word' } } },
    );
    expect(contentOf(await session.call('ask', { id: '1' }))).toMatchObject({
      got: true,
      said: { authorization: 'Basic [secret]', 'user-agent': 'Pawl/1' },
    });
  });

  test('redirects stay within the allow list, and secrets with their host (I16)', async () => {
    const other = await startTestService((_asked, response) => sendJson(response, { from: 'other' }));
    const service = await startTestService(({ url }, response) => {
      response.writeHead(302, { location: url.endsWith('/out') ? `${other.url}/stolen` : `${other.url}/fine` }).end();
    });
    const routing = { headers: { 'x-key': '{secret:api}' }, secrets: { api: { env: 'PAWL_SECRET_API' } } };
    const allowedHosts = [service.host, other.host];
    const { session, fleet } = await connect(service, routing, { fleet: { settings: { allowedHosts } } });
    expect((await session.call('ask', { id: 'out' })).error?.code).toBe('PERMISSION_DENIED');
    expect(other.asked).toHaveLength(0);
    const spec = (await fleet.pawl.registry.read('ask')) as unknown as DeclaredTool & Record<string, unknown>;
    const { name, namespace, revision, updatedAtMs, updatedBy, definition, ...declared } = spec;
    await fleet.pawl.registry.put('ask', {
      ...declared,
      routing: { ...(declared.routing as Routing), allow: { hosts: allowedHosts } },
    } as DeclaredTool);
    expect(contentOf(await session.call('ask', { id: 'in' }))).toEqual({ from: 'other' });
    expect(other.asked[0]?.headers).not.toHaveProperty('x-key');
  });

  test('no header of its own follows a redirect to another origin, wherever it comes from', async () => {
    const other = await startTestService((_asked, response) => {
      response.writeHead(302, { location: `${service.url}/end` }).end();
    });
    const service = await startTestService(({ url }, response) => {
      if (url.endsWith('/end')) sendJson(response, { from: 'service' });
      else response.writeHead(302, { location: `${other.url}/on` }).end();
    });
    const allowedHosts = [service.host, other.host];
    const routing = {
      headers: {
        'x-key': '{secret:api}',
        'x-plain-key': 'secret',
        authorization: 'Bearer secret',
        'user-agent': 'mine',
      },
      secrets: { api: { env: 'PAWL_SECRET_API' } },
      arguments: { token: { in: 'header', name: 'x-token' } },
      idempotencyHeader: 'idempotency-key',
      allow: { hosts: allowedHosts },
    } as const;
    const { session } = await connect(service, routing, { fleet: { settings: { allowedHosts } } });
    expect(contentOf(await session.call('ask', { id: '1', token: 'secret' }))).toEqual({ from: 'service' });
    const [first] = service.asked;
    expect(first?.headers).toMatchObject({
      'x-plain-key': 'secret',
      'x-token': 'secret',
      'idempotency-key': expect.any(String),
    });
    for (const { headers } of [...other.asked, ...service.asked.slice(1)]) {
      expect(headers).toMatchObject({ 'user-agent': 'mine' });
      for (const name of ['x-key', 'x-plain-key', 'authorization', 'x-token', 'idempotency-key'])
        expect(headers).not.toHaveProperty(name);
    }
    expect([other.asked.length, service.asked.length]).toEqual([1, 2]);
  });
});
