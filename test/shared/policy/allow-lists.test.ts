import { describe, expect, test } from 'vitest';
import { glob } from '../../../src/workers/tools/glob.ts';
import { grepFiles } from '../../../src/workers/tools/grep-files.ts';
import { listDir } from '../../../src/workers/tools/list-dir.ts';
import { resultOf } from './policy-result.ts';

test('I16: hosts, paths and methods are lists of what is allowed', () => {
  const rule = { hosts: ['*.example.com'], paths: ['docs/*'], methods: ['GET'] };
  const on = (params: object) =>
    resultOf({ global: { tools: { shell: rule } } }, { params: params as Record<string, unknown> });
  expect(on({ url: 'https://api.example.com/x', path: 'docs/a.md', method: 'get' }).decision).toBe('allow');
  expect(on({ url: 'https://example.com.evil.net/' }).rule).toMatch(/\.hosts$/);
  expect(on({ path: 'docs/../secrets' }).rule).toMatch(/\.paths$/);
  for (const name of ['filePath', 'file_path']) expect(on({ [name]: 'secrets' }).rule).toMatch(/\.paths$/);
  expect(on({ method: 'DELETE' }).rule).toMatch(/\.methods$/);
});

test('I16: of a list every entry is looked at', () => {
  const rule = { hosts: ['*.example.com'], paths: ['docs/*'] };
  const on = (params: Record<string, unknown>) => resultOf({ global: { tools: { shell: rule } } }, { params });
  expect(on({ paths: ['docs/a', 'docs/b'], urls: ['https://www.example.com/', 3] }).decision).toBe('allow');
  expect(on({ paths: ['docs/a', 'secrets/b'] }).reason).toContain('secrets/b');
  expect(on({ directories: ['docs/../secrets'] }).rule).toMatch(/\.paths$/);
  expect(on({ urls: ['https://www.example.com/', 'https://evil.net/'] }).reason).toContain('evil.net');
  expect(on({ hosts: ['evil.net'] }).rule).toMatch(/\.hosts$/);
});

test('I16: what stands in objects, and the files of a patch, are looked at', () => {
  const rule = { hosts: ['*.example.com'], paths: ['docs/*'] };
  const on = (params: Record<string, unknown>) => resultOf({ global: { tools: { shell: rule } } }, { params });
  const files = [{ path: 'docs/a', content: '' }];
  expect(on({ files, request: { url: 'https://www.example.com/' } }).decision).toBe('allow');
  expect(on({ files: [...files, { path: 'secrets/b' }] }).reason).toContain('secrets/b');
  expect(on({ request: { urls: ['https://evil.net/'] } }).reason).toContain('evil.net');
  const patched = (...heads: string[]) =>
    on({ patch: ['*** Begin Patch', ...heads.map((head) => `*** ${head}`), '*** End Patch'].join('\n') });
  expect(patched('Delete File: docs/a').decision).toBe('allow');
  expect(patched('Delete File: docs/a', 'Delete File: docs/../secrets/b').reason).toContain('the path secrets/b');
  expect(patched('Update File: docs/a', 'Move to: secrets/c').reason).toContain('the path secrets/c');
  expect(on({ patch: '--- a/secrets/d\n+++ b/secrets/d\n@@ -1 +1 @@\n-a\n+b\n' }).reason).toContain('secrets/d');
  const deep = JSON.parse(`${'['.repeat(50_000)}${']'.repeat(50_000)}`) as unknown;
  expect(on({ deep }).decision).toBe('allow');
});

test('I16: a parameter that a call leaves out is what its schema says', () => {
  const inputSchema = {
    type: 'object',
    properties: {
      path: { type: 'string', default: '.' },
      url: { type: 'string', default: 'https://evil.net/' },
      pattern: true,
      method: { type: 'string', default: 'DELETE' },
    },
  };
  const on = (rule: object, params: Record<string, unknown>) =>
    resultOf(
      { global: { tools: { shell: rule } } },
      { params, tool: { name: 'shell', tier: 'system', effects: 'once', inputSchema } },
    );
  expect(on({ paths: ['docs/*'] }, {}).rule).toMatch(/\.paths$/);
  expect(on({ paths: ['docs/*'] }, { path: 'docs/a' }).decision).toBe('allow');
  expect(on({ paths: ['.'] }, {}).decision).toBe('allow');
  expect(on({ hosts: ['*.example.com'] }, {}).rule).toMatch(/\.hosts$/);
  expect(on({ methods: ['GET'] }, {}).rule).toMatch(/\.methods$/);
  expect(on({ methods: ['GET'] }, { method: undefined }).rule).toMatch(/\.methods$/);
});

test('I16: of a choice, a parameter that a call leaves out is what the alternative of its tag says', () => {
  const alternative = (op: string, method: string) => ({
    type: 'object',
    properties: { op: { const: op }, method: { type: 'string', default: method } },
    required: ['op'],
  });
  const inputSchema = {
    anyOf: [alternative('look', 'GET'), { $ref: '#/$defs/change' }],
    $defs: { change: alternative('change', 'DELETE') },
  };
  const on = (params: Record<string, unknown>) =>
    resultOf(
      { global: { tools: { shell: { methods: ['GET'] } } } },
      { params, tool: { name: 'shell', tier: 'system', effects: 'once', inputSchema } },
    );
  expect(on({ op: 'look' }).decision).toBe('allow');
  expect(on({ op: 'change' }).rule).toMatch(/\.methods$/);
  expect(on({ op: 'change', method: 'GET' }).decision).toBe('allow');
});

test.each([grepFiles, glob, listDir])(
  'I16: a list of paths holds for $name without a path, which looks everywhere',
  (tool) => {
    const policy = { global: { tools: { [tool.name]: { paths: ['docs/*'] } } } };
    expect(resultOf(policy, { tool, params: { pattern: '*' } }).rule).toMatch(/\.paths$/);
    expect(resultOf(policy, { tool, params: { pattern: '*', path: 'docs/api' } }).decision).toBe('allow');
  },
);

describe('I16: a list of hosts parses a URL as fetch does', () => {
  const onHosts = (value: string) =>
    resultOf({ global: { tools: { shell: { hosts: ['*.example.com'] } } } }, { params: { value } });

  test.each([
    'https:/evil.net/',
    'https:evil.net',
    'https:\\\\evil.net\\',
    'h\tttps://evil.net/',
    'ht\ntps://evil.net/',
    '\u0001 https://evil.net/',
    'HTTPS:/EVIL.NET/',
    'https://www.example.com@evil.net/',
    'file:///etc/passwd',
  ])('%j is refused', (value) => expect(onHosts(value).rule).toMatch(/\.hosts$/));

  test.each([
    'https:/www.example.com/',
    'Answer: see https://evil.net/',
    'mailto:ada@evil.net',
    'C:\\notes',
    'evil.net',
  ])('%j names no other host', (value) => expect(onHosts(value).decision).toBe('allow'));
});

test.each<readonly [listed: string, named: string, decision: string]>([
  ['*.example.com', 'api.EXAMPLE.com', 'allow'],
  ['*.example.com', 'api.example.com:8443', 'allow'],
  ['*.EXAMPLE.com', 'api.example.com', 'allow'],
  ['*.example.com', 'https://api.example.com/x', 'allow'],
  ['*.example.com', 'evil.net/?.example.com', 'deny'],
  ['*.example.com', 'evil.net#.example.com', 'deny'],
  ['*.example.com', 'evil.net:80/.example.com', 'deny'],
  ['*.example.com', 'ada@evil.net/.example.com', 'deny'],
  ['*.example.com', 'https://evil.net/.example.com', 'deny'],
  ['*.example.com', 'evil.net\\.example.com', 'deny'],
  ['not a host', 'not a host', 'deny'],
  ['bücher.example', 'xn--bcher-kva.example', 'allow'],
  ['bücher.example', 'https://bücher.example/', 'allow'],
  ['::1', 'http://[::1]:6379/', 'allow'],
  ['[2001:DB8:0::1]', '2001:db8::1', 'allow'],
  ['2001:db8::1', '[2001:DB8::1]:443', 'allow'],
  ['2001:db8::1', '2001:db8::2', 'deny'],
  ['10.0.0.*', '10.0.0.7', 'allow'],
  ['api.example.com:443', 'api.example.com:80', 'deny'],
  ['api.example.com:443', 'api.example.com:443', 'allow'],
  ['api.example.com:443', 'api.example.com', 'deny'],
  ['api.example.com:443', 'https://api.example.com/x', 'allow'],
  ['api.example.com:443', 'http://api.example.com/x', 'deny'],
  ['api.example.com:443', 'wss://api.example.com/x', 'allow'],
  ['*.example.com:8443', 'https://API.example.com:8443/', 'allow'],
  ['*.example.com:8443', 'https://evil.net:8443/.example.com:8443', 'deny'],
  ['*:8443', 'https://evil.net/', 'deny'],
  ['[::1]:6379', 'redis://[::1]:6379/', 'allow'],
  ['db.example.com:443', 'postgres://db.example.com/', 'deny'],
])('I16: where %s is listed, the host %s is judged as the network knows it: %s', (listed, host, decision) => {
  const policy = { global: { tools: { shell: { hosts: [listed] } } } };
  expect(resultOf(policy, { params: { host } }).decision).toBe(decision);
});
