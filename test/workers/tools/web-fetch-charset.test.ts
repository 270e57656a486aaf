import type { RequestListener } from 'node:http';
import { describe, expect, test } from 'vitest';
import { fetched } from './site.ts';

describe('the characters of a fetched page', () => {
  test('a byte order mark takes precedence over a header', async () => {
    const content = Buffer.from('\ufeffgrün', 'utf16le');
    for (const type of ['text/plain', 'text/html; charset=utf-8']) {
      const { result } = await fetched('/', (_, response) =>
        response.writeHead(200, { 'content-type': type }).end(content),
      );
      expect((await result).output.content).toBe('grün');
    }
  });

  const named = (rest: string) => `<p>gr\u00fcn \u2014 ${rest}</p>`;
  const utf8 = (text: string) => Buffer.from(text);
  /** Characters that differ between Windows-1252 and ISO 8859-2. */
  const latin = (text: string) => Buffer.from(text.replaceAll('\u2014', '\u0097'), 'latin1');
  const HTML = 'text/html';
  test.each<[string, string, Buffer, string]>([
    ['Markdown that mentions a meta element', 'text/markdown', utf8('`<meta charset="iso-8859-1">` grün'), 'grün'],
    ['JSON that mentions one', 'application/json', utf8('{"a":"<meta charset=koi8-r> grün"}'), 'grün'],
    ['a script that mentions one', 'text/javascript', utf8('x = "<meta charset=koi8-r>grün"'), 'grün'],
    ['XML that has one', 'application/rss+xml', utf8('<rss><meta charset="koi8-r"/>grün</rss>'), 'grün'],
    ['XHTML that has one', 'application/xhtml+xml', utf8('<html><meta charset="koi8-r"/><p>grün</p></html>'), 'grün'],
    ['HTML that has one', HTML, latin(`<meta charset="windows-1252">${named('')}`), 'grün —'],
    [
      'HTML with a content type in one',
      HTML,
      latin(`<META content='text/html; charset=latin1' http-equiv=Content-Type>${named('')}`),
      'grün —',
    ],
    [
      'HTML whose description mentions one',
      HTML,
      utf8(`<meta name="description" content="charset=latin1">${named('')}`),
      'grün —',
    ],
    ['HTML with one in a comment', HTML, utf8(`<!-- <meta charset="latin1"> -->${named('')}`), 'grün —'],
    ['HTML with one in an attribute', HTML, utf8(`<p title="<meta charset=latin1>">${named('')}`), 'grün —'],
    ['HTML with two', HTML, utf8(`<meta charset="utf-8"><meta charset="latin1">${named('')}`), 'grün —'],
    [
      'HTML with a label that is none, then one',
      HTML,
      latin(`<meta charset="no-such"><meta charset="latin1">${named('')}`),
      'grün —',
    ],
    ['HTML that says UTF-16 in ASCII', HTML, utf8(`<meta charset="utf-16">${named('')}`), 'grün —'],
    [
      'HTML that says another than its header',
      `${HTML}; charset=utf-8`,
      utf8(`<meta charset="latin1">${named('')}`),
      'grün —',
    ],
    [
      'a header in quotes, among others',
      `${HTML}; x-charset=koi8-r; Charset="windows-1252"`,
      latin(named('')),
      'grün —',
    ],
    [
      'a header whose label is none',
      `${HTML}; charset=no-such`,
      latin(`<meta charset="latin1">${named('')}`),
      'grün —',
    ],
    [
      'a mark against header and meta',
      `${HTML}; charset=latin1`,
      utf8(`\ufeff<meta charset="latin1">${named('')}`),
      'grün —',
    ],
    [
      'an XML declaration',
      'text/xml',
      latin('<?xml version="1.0" encoding="windows-1252"?><a>grün \u2014</a>'),
      'grün —',
    ],
    [
      'an XML declaration against its header',
      'text/xml; charset=utf-8',
      utf8('<?xml version="1.0" encoding="latin1"?><a>grün</a>'),
      'grün',
    ],
    [
      'an XML declaration in XHTML',
      'application/xhtml+xml',
      latin(`<?xml version='1.0' encoding='latin1'?><html>${named('')}</html>`),
      'grün —',
    ],
    [
      'XML in UTF-16 without a mark',
      'application/xml',
      Buffer.from('<?xml version="1.0"?><a>grün</a>', 'utf16le'),
      'grün',
    ],
    [
      'text that mentions an XML declaration',
      'text/plain',
      utf8('<?xml version="1.0" encoding="latin1"?> grün'),
      'grün',
    ],
    ['a style sheet', 'text/css', latin('@charset "latin1"; /* grün */'), 'grün'],
    ['an image in XML', 'image/svg+xml', latin('<?xml version="1.0" encoding="latin1"?><svg>grün</svg>'), 'grün'],
    ['a header whose quotes do not end', `${HTML}; charset="windows-1252`, latin(named('')), 'grün —'],
    ['joined headers whose first names it', `${HTML}; charset=koi8-r, ${HTML}`, Buffer.from([0xd0, 0xd2]), 'пр'],
    ['joined headers of one type', `${HTML}; charset=koi8-r, ${HTML}; charset=utf-8, ${HTML}`, utf8('grün'), 'grün'],
    ['joined headers of two types', `text/plain; charset=koi8-r, ${HTML}`, utf8('grün'), 'grün'],
    ['a header that has a charset and no type', '; charset=koi8-r', Buffer.from([0xd0, 0xd2]), 'пр'],
    ...[
      '<meta x=a"b charset=koi8-r>',
      '<p title=it"s><meta charset=koi8-r>',
      '</><meta charset=koi8-r>',
      '<meta/charset=koi8-r>',
      `<script>${'x'.repeat(3_000)}</script><meta charset="koi8-r">`,
    ].map((head): [string, string, Buffer, string] => [
      `HTML below ${head.slice(0, 40)}`,
      HTML,
      latin(`${head}<p>\xd0\xd2</p>`),
      'пр',
    ]),
    ...['<p title="<meta charset=koi8-r>', '<p title=\'">x<meta charset="koi8-r">', '<meta charset="koi8-r'].map(
      (open): [string, string, Buffer, string] => [`HTML above ${open}`, HTML, latin(`${named('')}${open}`), 'grün —'],
    ),
    [
      'UTF-8 that names another far below',
      HTML,
      utf8(`<script>${'x'.repeat(3_000)}</script><meta charset="latin1">${named('')}`),
      'grün —',
    ],
    ['a page that names none', HTML, latin(named('')), 'grün —'],
    ['a page in UTF-8 with one wrong byte', HTML, Buffer.concat([utf8('grün —'), latin('ü')]), 'grün —\ufffd'],
    ['a page that has a replacement character', HTML, utf8('a \ufffd b'), 'a \ufffd b'],
  ])('the charset of %s is what browsers take', async (_name, type, body, expected) => {
    for (const format of ['raw', 'markdown'] as const) {
      const serve: RequestListener = (_, response) => response.writeHead(200, { 'content-type': type }).end(body);
      expect((await (await fetched('/', serve, { format })).result).output.content).toContain(expected);
    }
  });
});
