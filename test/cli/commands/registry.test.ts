import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { startRig } from '../../producer/http/rig.ts';
import { sendJson, startTestService } from '../../workers/connectors/service.ts';
import { type CliFixture, openPlace } from '../pawl.ts';

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

const require = createRequire(import.meta.url);

function officialServer(name: string): readonly string[] {
  const folder = dirname(require.resolve(`@modelcontextprotocol/server-${name}/package.json`));
  return [process.execPath, join(folder, 'dist/index.js')];
}

const SHOP = `
openapi: 3.1.0
info: { title: Shop, version: 1.0.0 }
components:
  securitySchemes: { key: { type: apiKey, in: header, name: x-key } }
security: [{ key: [] }]
paths:
  /orders/{id}:
    get: &order
      operationId: getOrder
      tags: [orders]
      parameters: [{ name: id, in: path, required: true, schema: { type: integer } }]
      responses: { '200': { description: The order } }
    delete:
      <<: *order
      operationId: deleteOrder
  /picture:
    post:
      operationId: addPicture
      requestBody: { required: true, content: { multipart/form-data: { schema: { type: object } } } }
      responses: { '200': { description: Added } }
`;

test('pawl tools import-mcp, import-openapi: a worker runs the declared tools (C22, I8)', async () => {
  const add = defineTool({
    name: 'add',
    version: '1.0.0',
    description: 'Adds two numbers.',
    tier: 'read-only',
    input: z.object({ a: z.number(), b: z.number() }),
    run: ({ a, b }) => ({ output: { sum: a + b } }),
  });
  const token = 'a-token-of-the-service';
  const other = await startRig({ tools: [add], settings: { apiTokens: [{ token, role: 'agent' }] } });
  const shop = await startTestService(({ url, headers }, response) =>
    sendJson(response, { url, key: headers['x-key'] }),
  );
  const env = {
    PAWL_ALLOWED_HOSTS: `${shop.host},${new URL(other.server.url).host}`,
    SUMS_AUTHORIZATION: `Bearer ${token}`,
    PAWL_SECRET_SHOP: 'the-shop-key',
  };
  writeFileSync(join(place.folder, 'note.txt'), 'hello');
  writeFileSync(join(place.folder, 'shop.yaml'), SHOP);
  const run = (...args: string[]) => place.run(args, { env });
  const importFiles = ['tools', 'import-mcp', 'files', '--folder', place.folder];

  const [files, sums, dry] = await Promise.all([
    run(...importFiles, '--read-only', 'read_text_file', '--', ...officialServer('filesystem'), place.folder),
    run(
      'tools',
      'import-mcp',
      'sums',
      '--url',
      `${other.server.url}/mcp`,
      '--read-only',
      'add',
      '--header',
      'Authorization: env:SUMS_AUTHORIZATION',
    ),
    run('tools', 'import-openapi', 'shop.yaml', '--server', shop.url, '--dry-run', '--json'),
  ]);
  expect(files, files.stderr).toMatchObject({ code: 0 });
  expect(files.stdout).toMatch(/mcp\.files\.read_text_file +read-only +none +added/);
  expect(files.stdout).toMatch(/mcp\.files\.write_file +system +once +added/);
  expect(sums, sums.stderr).toMatchObject({ code: 0 });
  expect(sums.stdout).toContain('mcp.sums.add');
  expect(dry.stderr).toMatch(/left out: .*multipart/);
  expect(dry.stderr).toContain('workers read a secret from the variable PAWL_SECRET_KEY\n');
  expect(JSON.parse(dry.stdout).skipped).toEqual([
    { operation: 'addPicture', reason: expect.stringContaining('multipart') },
  ]);
  expect(JSON.parse(dry.stdout).tools.map(({ name }: { name: string }) => name)).toEqual([
    'shop.getOrder',
    'shop.deleteOrder',
  ]);

  const [imported, drifted] = await Promise.all([
    run(
      'tools',
      'import-openapi',
      'shop.yaml',
      '--read-only',
      '--server',
      shop.url,
      '--secret',
      'key=env:PAWL_SECRET_SHOP',
    ),
    run(...importFiles, '--', ...officialServer('memory')),
  ]);
  expect(imported, imported.stderr).toMatchObject({ code: 0 });
  expect(imported.stdout).toMatch(/shop\.getOrder +http +read-only +1/);
  expect(drifted, drifted.stdout).toMatchObject({ code: 1 });
  expect(drifted.stdout).toMatch(/mcp\.files\.read_text_file +gone/);
  expect(drifted.stderr).toContain('nothing was changed');

  const worker = await place.worker(env);
  const call = async (namespace: string, tool: string, params: object) => {
    const called = await run('call', `${namespace}.${tool}`, '--params', JSON.stringify(params), '--json');
    expect(called, called.stdout).toMatchObject({ code: 0 });
    return JSON.parse(called.stdout).output.content as unknown;
  };
  const [note, sum, order] = await Promise.all([
    call('mcp.files', 'read_text_file', { path: join(place.folder, 'note.txt') }),
    call('mcp.sums', 'add', { a: 2, b: 3 }),
    call('shop', 'getOrder', { id: 7 }),
  ]);
  expect(note).toEqual({ content: 'hello' });
  expect(sum).toEqual({ sum: 5 });
  // What the service sends back of the secret is taken out.
  expect(order).toEqual({ url: '/orders/7', key: '[secret]' });
  expect(shop.asked[0]?.headers['x-key']).toBe('the-shop-key');

  const accepted = await run(...importFiles, '--accept', '--', ...officialServer('memory'));
  expect(accepted, accepted.stderr).toMatchObject({ code: 0 });
  expect(accepted.stdout).toMatch(/mcp\.files\.create_entities +system +once +added/);
  worker.signal('SIGTERM');
  expect(await worker.ended).toEqual({ code: 0, signal: null });
});

test('pawl policy explain includes the registry’s policy for a tool (I3, I7)', async () => {
  const declared = {
    name: 'order',
    kind: 'dynamic',
    version: '1.0.0',
    description: 'Orders something.',
    inputSchema: { type: 'object' },
    policy: { decision: 'ask', reason: 'it costs money' },
  };
  writeFileSync(join(place.folder, 'order.json'), JSON.stringify(declared));
  const run = (...args: string[]) => place.run(args);
  expect(await run('tools', 'add', 'order.json')).toMatchObject({ code: 0 });
  const asked = await run('policy', 'explain', 'order');
  expect(asked.stdout).toContain('ask: it costs money (registry.tools.order)');
  expect(asked.stderr).toContain('without one no person can be asked, and the call is denied');
  for (const [key, ...channel] of [['mute'], ['heard', '--channel', 'operator']] as const) {
    await run('sessions', 'open', '--key', key, ...channel);
    const { stderr } = await run('policy', 'explain', 'order', '--session', key);
    expect(stderr.includes('so the call is denied')).toBe(key === 'mute');
  }
  expect(await run('tools', 'disable', 'order')).toMatchObject({ code: 0 });
  expect((await run('policy', 'explain', 'order')).stdout).toContain('deny: the tool is disabled in the registry');
});

test('a tool of another namespace is called, and explained, by its whole name, or with --namespace', async () => {
  const declared = {
    name: 'pay',
    namespace: 'shop.tills',
    kind: 'dynamic',
    version: '1.0.0',
    description: 'Pays something.',
    inputSchema: { type: 'object' },
    policy: { decision: 'deny', reason: 'the till is closed' },
  };
  writeFileSync(join(place.folder, 'pay.json'), JSON.stringify(declared));
  expect(await place.run(['tools', 'add', 'pay.json'])).toMatchObject({ code: 0 });
  for (const named of [['shop.tills.pay'], ['pay', '--namespace', 'shop.tills']]) {
    const explained = await place.run(['policy', 'explain', ...named]);
    expect(explained).toMatchObject({ code: 0, stdout: expect.stringContaining('deny: the till is closed') });
    const called = await place.run(['call', ...named, '--params', '{}']);
    expect(called).toMatchObject({ code: 5, stderr: expect.stringContaining('the till is closed') });
    expect(called.stderr).toContain('no worker that has shop.tills.pay is running');
    expect(called.stderr).toContain('pawl: shop.tills.pay: PERMISSION_DENIED');
  }
  const unknown = await place.run(['call', 'shop.tills.pya']);
  expect(unknown).toMatchObject({ code: 2, stderr: expect.stringContaining('Did you mean pay?') });
});

test('an unusable import is a usage error, or gives its reason, and changes nothing', async () => {
  writeFileSync(join(place.folder, 'broken.yaml'), 'openapi: [');
  writeFileSync(join(place.folder, 'server.mjs'), '');
  writeFileSync(join(place.folder, 'npx'), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
  const refusing = await startTestService(({ url }, response) =>
    sendJson(response, { error: 'no' }, url === '/mcp' ? 401 : 404),
  );
  const refused = (path: string) =>
    place.run(['tools', 'import-mcp', 'refuses', '--url', `${refusing.url}${path}`], {
      env: { PAWL_ALLOWED_HOSTS: refusing.host },
    });
  const npx = ['--', join(place.folder, 'npx'), '-y', 'some-server'];
  const results = await Promise.all([
    place.run(['tools', 'import-mcp', '9lives', '--', 'true']),
    place.run(['tools', 'import-mcp', 'both', '--url', 'http://127.0.0.1:9/mcp', '--', 'true']),
    place.run(['tools', 'import-mcp', 'nobody', '--', 'no-such-program']),
    place.run(['tools', 'import-mcp', 'ends', '--', 'false']),
    place.run(['tools', 'import-openapi', 'nothing.yaml']),
    place.run(['tools', 'import-openapi', 'broken.yaml']),
    place.run(['tools', 'import-mcp', 'relative', '--', process.execPath, 'server.mjs']),
    place.run(['tools', 'import-mcp', 'offline', ...npx]),
    place.run(['tools', 'import-mcp', 'online', '--network', ...npx]),
    refused('/mcp'),
    refused('/sse'),
  ]);
  expect(results.map(({ code }) => code)).toEqual([2, 2, 2, 1, 2, 2, 1, 1, 1, 1, 1]);
  for (const { stdout, stderr } of results) {
    expect(stdout).toBe('');
    expect(stderr).toMatch(/^\S.*\n/);
    expect(stderr).not.toMatch(/\n\s+at /);
  }
  expect(results[3]?.stderr).toMatch(/^pawl: The MCP server ends .*\n$/);
  expect(results[6]?.stderr).toContain(`write ${join(place.folder, 'server.mjs')}.`);
  expect(results[7]?.stderr).toContain('npx has no network to install from');
  expect(results[8]?.stderr).not.toContain('npx has no network');
  expect(results[9]?.stderr).toMatch(/^pawl: The MCP server refuses refuses the connection \(HTTP 401\): .*\n$/);
  expect(results[10]?.stderr).toMatch(/^pawl: Pawl speaks streamable HTTP.*\npawl: .* \(HTTP 404\): .*\n$/);
});

test('pawl tools add declares the output of a dry run, with additions made by hand', async () => {
  writeFileSync(join(place.folder, 'shop.yaml'), SHOP);
  const dry = await place.run([
    ...['tools', 'import-openapi', 'shop.yaml', '--namespace', 'edited', '--server', 'https://shop.example.com'],
    ...['--dry-run', '--json'],
  ]);
  const printed = JSON.parse(dry.stdout) as { tools: { routing: { headers?: object } }[] };
  for (const { routing } of printed.tools) routing.headers = { ...routing.headers, 'x-version': '3' };
  writeFileSync(join(place.folder, 'edited.json'), JSON.stringify(printed));
  const added = await place.run(['tools', 'add', 'edited.json', '--json']);
  expect(added, added.stderr).toMatchObject({ code: 0 });
  const declared = (JSON.parse(added.stdout) as typeof printed).tools;
  expect(declared).toHaveLength(2);
  expect(declared[0]).toMatchObject({ namespace: 'edited', routing: { headers: { 'x-version': '3' } } });
});

test.each<[string, (text: string) => Buffer]>([
  ['UTF-8 behind a byte order mark', (text) => Buffer.from(`\ufeff${text}`)],
  ['UTF-16', (text) => Buffer.from(`\ufeff${text}`, 'utf16le')],
  ['UTF-16 of the other order', (text) => Buffer.from(`\ufeff${text}`, 'utf16le').swap16()],
  ['Windows-1252', (text) => Buffer.from(text, 'latin1')],
])('a document in %s is read', async (_what, encode) => {
  const paths = { '/a': { get: { operationId: 'getA', summary: 'Gibt Öl', responses: {} } } };
  const document = { openapi: '3.1.0', info: { title: 'Marked', version: '1.0.0' }, paths };
  writeFileSync(join(place.folder, 'marked.json'), encode(JSON.stringify(document)));
  const server = ['--server', 'http://127.0.0.1:9'];
  const dry = await place.run(['tools', 'import-openapi', 'marked.json', ...server, '--dry-run', '--json']);
  expect(JSON.parse(dry.stdout).tools).toMatchObject([{ name: 'marked.getA', description: 'Gibt Öl' }]);
});

const YAML = 'openapi: 3.1.0\ninfo: {title: Tagged}\nservers: [{url: http://127.0.0.1:9}]\npaths:\n  /a:\n';

test.each([
  ['with unknown tags', `${YAML}    get: {operationId: !own a, x: !!odd y}\n`, 0, /^$/],
  [
    'of several documents',
    `${YAML}---\nb: 1\n`,
    2,
    /^pawl: odd.yaml cannot be read as JSON or YAML: .* documents at line 6, column 1/,
  ],
  [
    'with a member twice',
    `${YAML}  /a: {}\n`,
    2,
    /^pawl: odd.yaml cannot be read as JSON or YAML: Map keys must be unique at line 5, column 6\.\n$/,
  ],
])('YAML %s is read without warnings, or refused in one sentence', async (_what, text, code, stderr) => {
  writeFileSync(join(place.folder, 'odd.yaml'), text);
  const pawl = place.start(['tools', 'import-openapi', 'odd.yaml', '--dry-run']);
  expect(await pawl.ended).toMatchObject({ code });
  expect(pawl.stderr()).toMatch(stderr);
});

test.each([
  ['an empty entry', '- name: fine\n  kind: alias\n  target: greet\n-\n', 'tool 2 must be an object'],
  ['a name that is none', 'name: 42\nkind: alias\n', 'name must be text; got 42'],
  ['nothing', '', 'tool 1 must be an object'],
])('pawl tools add refuses a file of %s, and declares none of its tools', async (_what, text, message) => {
  const file = join(place.folder, 'wrong.yaml');
  writeFileSync(file, text);
  const refused = await place.run(['tools', 'add', file]);
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining(message) });
  expect((await place.run(['tools', 'show', 'fine'])).code).toBe(2);
});
