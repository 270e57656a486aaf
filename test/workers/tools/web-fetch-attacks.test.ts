/** Pages, addresses and redirects that are made to harm the worker or to reach its machine. */
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { webFetch } from '../../../src/workers/tools/web-fetch.ts';
import { testContext } from '../../helpers/context.ts';
import { cpuMsOf } from '../../helpers/cpu.ts';
import { fetched, site } from './site.ts';

describe('web_fetch', () => {
  test('a double-gzip bomb of less than 1 KB is cut at the cap', async () => {
    const bomb = gzipSync(gzipSync(Buffer.alloc(150_000_000, 'a'), { level: 9 }), { level: 9 });
    expect(bomb.length).toBeLessThan(1_000);
    const before = process.memoryUsage.rss();
    const { result } = await fetched(
      '/',
      (_, response) =>
        response.writeHead(200, { 'content-type': 'text/plain', 'content-encoding': 'gzip, gzip' }).end(bomb),
      { max_length: 10 },
    );
    const { output } = await result;
    expect(output).toMatchObject({ bodyTruncated: true, totalLength: 4 * 1024 * 1024 });
    expect(process.memoryUsage.rss() - before).toBeLessThan(200_000_000);
  });

  test('pages that are built to be slow or deep are returned as text', async () => {
    for (const html of [`${'<div>'.repeat(25_000)}deep`, `${'<a><b>'.repeat(40_000)}many`]) {
      const { result } = await fetched('/', (_, response) =>
        response.writeHead(200, { 'content-type': 'text/html' }).end(html),
      );
      expect((await result).output.content).toMatch(/deep|many/);
    }
  });

  test.each(['<', '<!--', '<p ', '<script>', '&', '\u00a0 ', '<script '])(
    'a page of nothing but %j does not block the worker',
    async (part) => {
      const html = part.repeat(300_000 / part.length);
      const { result } = await fetched('/', (_, response) =>
        response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(html),
      );
      const cpuMs = await cpuMsOf(() => result);
      expect((await result).output.status).toBe(200);
      expect(cpuMs).toBeLessThan(5_000);
    },
  );

  test('an error page of nothing but "<" does not block the worker', async () => {
    const { result } = await fetched('/', (_, response) =>
      response.writeHead(404, { 'content-type': 'text/html' }).end('<'.repeat(1_000_000)),
    );
    expect(await cpuMsOf(() => result.catch(() => undefined))).toBeLessThan(5_000);
    await expect(result).rejects.toMatchObject({ status: 404 });
  });

  test('every address of this machine is refused, and the server there gets no request', async () => {
    const { port, asked } = await site((_, response) => response.end('secret'));
    const ctx = testContext({ tier: 'read-only', needs: ['network'] });
    const hosts = [
      '127.0.0.1',
      'localhost',
      'localhost.',
      'LOCALHOST',
      'x.localhost',
      '2130706433',
      '0x7f000001',
      '0x7f.0.0.1',
      '0177.0.0.1',
      '017700000001',
      '127.1',
      '127.0.1',
      '127.000.000.001',
      '0',
      '0.0.0.0',
      '[::1]',
      '[::]',
      '[::ffff:127.0.0.1]',
      '[::ffff:7f00:1]',
      '[0:0:0:0:0:ffff:127.0.0.1]',
      '[64:ff9b::127.0.0.1]',
      '[64:ff9b::7f00:1]',
      '[::127.0.0.1]',
      '[2002:7f00:1::]',
      '127.0.0.1.',
      '１２７.0.0.1',
      '127。0。0。1',
      '[fe80::1]',
      '[fc00::1]',
      '169.254.169.254',
    ];
    for (const host of hosts)
      await expect(webFetch.run(webFetch.parse({ url: `http://${host}:${port}/` }), ctx), host).rejects.toMatchObject({
        code: expect.stringMatching(/PERMISSION_DENIED|INVALID_PARAMS/),
      });
    for (const url of [
      `http://example.org@127.0.0.1:${port}/`,
      `http://127.0.0.1:${port}\\@example.org/`,
      `http://example.org#@127.0.0.1:${port}/`.replace('example.org#', '127.0.0.1#'),
      'file:///etc/passwd',
      'gopher://127.0.0.1/',
      'data:text/plain,x',
    ])
      await expect(webFetch.run(webFetch.parse({ url }), ctx), url).rejects.toMatchObject({
        code: expect.stringMatching(/PERMISSION_DENIED|INVALID_PARAMS/),
      });
    expect(asked).toEqual([]);
  });

  test('a redirect to this machine is refused at its hop', async () => {
    const inner = await site((_, response) => response.end('secret'));
    const { result } = await fetched('/', (_, response) =>
      response.writeHead(302, { location: `http://0x7f.1:${inner.port}/` }).end(),
    );
    await expect(result).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    expect(inner.asked).toEqual([]);
  });
});
