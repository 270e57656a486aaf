import type { RequestListener } from 'node:http';
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { readable } from '../../../src/workers/tools/lib/web-page.ts';
import { webFetch } from '../../../src/workers/tools/web-fetch.ts';
import { testContext } from '../../helpers/context.ts';
import { fetched, site } from './site.ts';

const ARTICLE = `<!doctype html><html><head><title>The page — Site</title><script>var secret = 1</script>
<meta property="article:published_time" content="2026-11-01T10:00:00Z"></head><body><nav><a href="/home">Home</a><a href="/x">Other</a></nav>
<article><h1>The page</h1>${'<p>A paragraph with enough text to be taken for the main content of this page, as pages have it.</p>'.repeat(6)}
<h2>Code</h2><pre><code>const a = 1;</code></pre><ul><li>one <a href="../doc?x=1">link</a></li></ul></article><footer>Imprint</footer></body></html>`;

describe('web_fetch (A16)', () => {
  test('gives the main content of a page as Markdown, with absolute links, tainted', async () => {
    const { result, url } = await fetched('/a/b', (_, response) =>
      response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(ARTICLE),
    );
    const { output, tainted } = await result;
    expect(output).toMatchObject({
      url: `${url}/a/b`,
      status: 200,
      contentType: 'text/html',
      publishedAt: '2026-11-01T10:00:00Z',
      bodyTruncated: false,
    });
    expect(output.title).toContain('The page');
    expect(output.content).toContain('## Code');
    expect(output.content).toContain('```\nconst a = 1;\n```');
    expect(output.content).toContain(`[link](${url}/doc?x=1)`);
    expect(output.content).not.toMatch(/secret|Imprint/);
    expect(tainted).toBe(true);
  });

  test('a page is plain text where the libraries for its main content are not installed', async () => {
    const missing = () => Promise.reject(new Error("Cannot find package 'linkedom'"));
    const page = await readable(ARTICLE, 'http://x.example', 'markdown', missing);
    expect(page).toMatchObject({ title: 'The page — Site', isWholePage: true });
    expect(page.content).toContain('const a = 1;');
    expect(page.content).not.toMatch(/secret|<|Site/);
  });

  test('a table keeps its rows and columns, and one that lays out the page its lines', async () => {
    const data = `<table><caption>Flags</caption><thead><tr><th>Flag</th><th>Does</th></tr></thead>
      <tbody><tr><td><code>-a</code></td><td><p>a | b</p></td></tr><tr><td>b</td><td></td></tr></tbody></table>`;
    const layout = `<table><tr><td><ul><li>one</li><li>two</li></ul></td><td>three</td></tr><tr><td>four</td></tr></table>`;
    const page: RequestListener = (_, response) =>
      response.writeHead(200, { 'content-type': 'text/html' }).end(`<html><body>${data}${layout}</body></html>`);
    const markdown = (await (await fetched('/', page)).result).output.content;
    expect(markdown).toContain('Flags\n\n| Flag | Does |\n| --- | --- |\n| `-a` | a \\| b |\n| b |  |\n');
    expect(markdown).toMatch(/-\s+one\n-\s+two\n\nthree\n\nfour/);
    const text = (await (await fetched('/', page, { format: 'text' })).result).output.content;
    expect(text).toContain('Flag Does');
  });

  test('an exponent and what is struck out keep their marks', async () => {
    const html =
      '<p>10<sup>6</sup> of 10<sup>−3</sup>, the 1<sup>st</sup> [<sup>a</sup>], <del>$9</del> <s>$8</s> $7</p>';
    const page: RequestListener = (_, response) =>
      response.writeHead(200, { 'content-type': 'text/html' }).end(`<html><body>${html}</body></html>`);
    const markdown = (await (await fetched('/', page)).result).output.content;
    expect(markdown).toBe('10^6 of 10^−3, the 1st \\[a\\], ~~$9~~ ~~$8~~ $7');
    const text = (await (await fetched('/', page, { format: 'text' })).result).output.content;
    expect(text).toContain('10^6 of 10^−3, the 1st');
  });

  test.each([
    ['application/x-sh', 'echo grün', 'echo grün'],
    ['application/sql', 'select 1', 'select 1'],
    ['application/vnd.github.raw', '# Read me', '# Read me'],
    ['application/octet-stream', 'plain', 'plain'],
    ['application/octet-stream', Buffer.concat([Buffer.alloc(4 * 1024 * 1024 - 1, 'a'), Buffer.from('ä')]), /^a+\n\[/],
    ['application/octet-stream', Buffer.from([0x7f, 0x45, 0x4c, 0x46, 0]), undefined],
    ['application/x-python', Buffer.from('caf\xe9', 'latin1'), undefined],
    ['application/pdf', '%PDF-1.4', undefined],
    ['video/mp2t', 'const a = 1;', undefined],
  ])('a body of the type %s is text if it is one', async (type, body, expected) => {
    const { result } = await fetched('/file', (_, response) => {
      response.writeHead(200, { 'content-type': type }).end(body);
    });
    if (expected === undefined)
      await expect(result).rejects.toMatchObject({ code: 'INVALID_PARAMS', message: expect.stringContaining(type) });
    else if (typeof expected === 'string') expect((await result).output.content).toBe(expected);
    else expect((await result).output.content).toMatch(expected);
  });

  test('an offset past the end is refused', async () => {
    const text: RequestListener = (_, response) =>
      response.writeHead(200, { 'content-type': 'text/plain' }).end('four');
    const { result } = await fetched('/', text, { offset: 4 });
    await expect(result).rejects.toMatchObject({
      code: 'INVALID_PARAMS',
      message: 'offset is past the end: the content has 4 characters.',
    });
    expect((await (await fetched('/', text, { offset: 3 })).result).output.content).toBe('r');
  });

  test('names of attributes may be in upper case', async () => {
    const text =
      '<P>A paragraph with enough text to be the main content of this page, as old pages have it.</P>'.repeat(6);
    const { result, url } = await fetched('/a', (_, response) =>
      response
        .writeHead(200, { 'content-type': 'text/html' })
        .end(
          `<HTML><HEAD><BASE HREF="/v1/"></HEAD><BODY>${text}<P><A HREF="b">link</A> <IMG SRC="c.png" ALT="c"></P></BODY></HTML>`,
        ),
    );
    expect((await result).output.content).toContain(`[link](${url}/v1/b) ![c](${url}/v1/c.png)`);
  });

  test.each<[name: string, headers: object, body: string, expected: object]>([
    [
      'no content type, but a page',
      {},
      '<!DOCTYPE html><html><body><p>caf\u00e9</p>',
      { contentType: 'text/html', content: 'caf\u00e9' },
    ],
    [
      'no content type, and no page',
      {},
      '# a <b> caf\u00e9',
      { contentType: 'text/plain', content: '# a <b> caf\u00e9' },
    ],
    ...['', 'html', '*/*', 'unknown/unknown'].map(
      (type) =>
        [
          `the content type ${JSON.stringify(type)}`,
          { 'content-type': [type] },
          '<!doctype html><p>caf\u00e9',
          { contentType: 'text/html', content: 'caf\u00e9' },
        ] satisfies [string, object, string, object],
    ),
    [
      'two content types',
      { 'content-type': ['text/plain', 'text/html; charset=utf-8'] },
      '<p>caf\u00e9',
      { contentType: 'text/html', content: 'caf\u00e9' },
    ],
  ])('%s', async (_name, headers, body, expected) => {
    const { result } = await fetched('/', (_, response) => {
      for (const [name, values] of Object.entries(headers)) response.setHeader(name, values as string[]);
      response.end(body);
    });
    expect((await result).output).toMatchObject(expected);
  });

  test.each([
    ['<base href="/docs/v2/">', '/docs/v2/page', '/docs/v2/pic.png'],
    ['<base href="//cdn.example/x/">', 'http://cdn.example/x/page', 'http://cdn.example/x/pic.png'],
    ['<base target="_blank"><base href="v1/"><base href="v2/">', '/a/v1/page', '/a/v1/pic.png'],
    ['<base href="javascript:0">', '/a/page', '/a/pic.png'],
    ['<base href="http://">', '/a/page', '/a/pic.png'],
    ['<!-- <base href="/c/"> --><base href="/d&amp;e/">', '/d&e/page', '/d&e/pic.png'],
  ])('addresses of a page are relative to its base: %s', async (base, link, image) => {
    const text = '<p>A paragraph with enough text to be the main content of this page, as pages have it.</p>'.repeat(6);
    const body = `<article>${text}<p><a href="page">link</a> <img src="pic.png" alt="pic"> <a href="#x">part</a>
      <img srcset="pic.png 1x, x.png 2x" alt="set"> <img src="" srcset=" ,pic.png, x.png 2x" alt="list"> <img data-src="pic.png" alt="late"></p></article>`;
    const { result, url } = await fetched('/a/b', (_, response) =>
      response
        .writeHead(200, { 'content-type': 'text/html' })
        .end(`<html><head>${base}</head><body>${body}</body></html>`),
    );
    const { content } = (await result).output;
    expect(content).toContain(`[link](${new URL(link, url).href})`);
    for (const name of ['pic', 'set', 'list', 'late'])
      expect(content).toContain(`![${name}](${new URL(image, url).href})`);
    const on = await fetched('/a/b', (_, response) =>
      response
        .writeHead(200, { 'content-type': 'text/html' })
        .end(`${base}<meta http-equiv="refresh" content="0; url=page">`),
    );
    expect((await on.result).output.content).toContain(`sends its readers on to ${new URL(link, on.url).href}]`);
  });

  test('an address in a set of images may have commas', async () => {
    const page = await readable(
      '<p><img srcset="/w_1,h_2/a.png 1x, /b.png 2x" alt="a">',
      'http://x.example/',
      'markdown',
    );
    expect(page.content).toBe('![a](http://x.example/w_1,h_2/a.png)');
  });

  test.each([
    [
      '<div id="root"></div><script src="app.js"></script>',
      '[empty: the page has no text, unless its scripts make some in a browser]',
    ],
    [
      '<meta http-equiv="refresh" content="0; url=\'../latest/\'">',
      '[empty: the page sends its readers on to ORIGIN/latest/]',
    ],
    [
      '<meta http-equiv=refresh content="0; ../latest/?a=1&amp;b=2">',
      '[empty: the page sends its readers on to ORIGIN/latest/?a=1&b=2]',
    ],
    [
      '<!-- <meta http-equiv="refresh" content="0; url=x"> --><meta http-equiv="refresh" content="0; url=javascript:0">',
      '[empty: the page has no text, unless its scripts make some in a browser]',
    ],
    [
      '<meta http-equiv = "Refresh" content = "0; URL = ../latest/">',
      '[empty: the page sends its readers on to ORIGIN/latest/]',
    ],
    [
      `<script>'<meta http-equiv="refresh" content="0; url=x">'</script>`,
      '[empty: the page has no text, unless its scripts make some in a browser]',
    ],
    [
      '<meta http-equiv="refresh" content="60; url=/docs/">',
      '[empty: the page has no text, unless its scripts make some in a browser]',
    ],
  ])('an empty page says why: %s', async (page, expected) => {
    const { result, url } = await fetched('/docs/', (_, response) =>
      response.writeHead(200, { 'content-type': 'text/html' }).end(page),
    );
    expect((await result).output).toMatchObject({ content: expected.replace('ORIGIN', url), totalLength: 0 });
  });

  test.each([
    ['<meta http-equiv="refresh" content="0; url=/new">', {}],
    ['', { refresh: '0; url=/new' }],
  ])('a page that sends its readers on says so below its text, too: %j %j', async (head, headers) => {
    const { result, url } = await fetched('/', (_, response) =>
      response.writeHead(200, { 'content-type': 'text/html', ...headers }).end(`${head}<p>You are redirected.</p>`),
    );
    const { content, totalLength } = (await result).output;
    expect(content).toBe(`You are redirected.\n[the page sends its readers on to ${url}/new]`);
    expect(totalLength).toBe('You are redirected.'.length);
  });

  test.each([
    ['text/html', gzipSync('<p>text</p>')],
    ['text/plain; charset=iso-8859-1', Buffer.from('\x89PNG\r\n\x1a\n\0\0\0\rIHDR', 'latin1')],
    ['application/json', Buffer.from('PK\x03\x04\x14\0\0', 'latin1')],
    ['', Buffer.from('\x7fELF\x02\x01\x01\0', 'latin1')],
  ])('binary data that is labelled as text (%j) is refused', async (type, body) => {
    const { result } = await fetched('/', (_, response) =>
      response.writeHead(200, type === '' ? {} : { 'content-type': type }).end(body),
    );
    await expect(result).rejects.toMatchObject({
      code: 'INVALID_PARAMS',
      message: expect.stringContaining('binary data'),
    });
  });

  test('an error without a page is reported by its status alone', async () => {
    const { result } = await fetched('/', (_, response) =>
      response.writeHead(503, { 'content-type': 'text/html' }).end(),
    );
    await expect(result).rejects.toThrow(/answered 503$/);
  });

  test('an error whose page breaks off is reported by its status', async () => {
    const { result } = await fetched('/', (_, response) => {
      response.writeHead(410, { 'content-length': 100 });
      response.write('Gone', () => response.destroy());
    });
    await expect(result).rejects.toMatchObject({ status: 410 });
  });

  test('an error page is quoted without its styles and scripts', async () => {
    const page =
      '<html><head><style>body { color: red }</style><script>track()</script></head><body><h1>Gone</h1></body></html>';
    const { result } = await fetched('/', (_, response) =>
      response.writeHead(410, { 'content-type': 'text/html' }).end(page),
    );
    await expect(result).rejects.toThrow(/answered 410: Gone$/);
  });

  test('text, JSON and raw source as they stand, by their charset', async () => {
    const latin = await fetched('/', (_, response) =>
      response
        .writeHead(200, { 'content-type': 'text/plain; charset=iso-8859-1' })
        .end(Buffer.from('gr\xfcn', 'latin1')),
    );
    expect((await latin.result).output.content).toBe('grün');
    const json = await fetched('/', (_, response) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"a":1}'),
    );
    expect((await json.result).output.content).toBe('{"a":1}');
    const raw = await fetched(
      '/',
      (_, response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<b>x</b>'),
      { format: 'raw' },
    );
    expect((await raw.result).output.content).toBe('<b>x</b>');
    const plain = await fetched(
      '/',
      (_, response) =>
        response.writeHead(200, { 'content-type': 'text/html' }).end('<p>a &amp; b&#33;</p><script>x</script>'),
      { format: 'text' },
    );
    expect((await plain.result).output.content).toBe('a & b!');
  });

  test('a cut says where to go on', async () => {
    const serve: RequestListener = (_, response) =>
      response.writeHead(200, { 'content-type': 'text/plain' }).end('0123456789');
    const first = (await (await fetched('/', serve, { max_length: 4 })).result).output;
    expect(first).toMatchObject({ nextOffset: 4, totalLength: 10 });
    expect(first.content).toBe('0123\n[truncated: characters 0 to 4 of 10; go on with offset 4]');
    expect((await (await fetched('/', serve, { offset: 4 })).result).output.content).toBe('456789');
  });

  test.each([404, 503])('an answer %i is an error that carries its status', async (status) => {
    const { result } = await fetched('/', (_, response) =>
      response.writeHead(status, { 'content-type': 'text/html' }).end('<p>not here</p>'),
    );
    await expect(result).rejects.toMatchObject({ status, message: expect.stringContaining('not here') });
  });

  test('content that is not text is refused', async () => {
    const { result } = await fetched('/', (_, response) =>
      response.writeHead(200, { 'content-type': 'application/zip' }).end('PK'),
    );
    await expect(result).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
  });

  test('works in a worker session (A17, A18)', async () => {
    const { host, url } = await site((_, response) =>
      response.writeHead(200, { 'content-type': 'text/plain' }).end('x'),
    );
    expect(
      (await webFetch.run(webFetch.parse({ url }), testContext({ kind: 'worker', allowedHosts: [host] }))).output
        .content,
    ).toBe('x');
  });
});
