/** What a failed MCP tool, or an error of its server, says reaches the model completely. */
import { expect, test } from 'vitest';
import { contentOf } from '../../helpers/fleet.ts';
import { answer, overStdio, said } from './mcp-odd-server.ts';

const structured = { reason: 'quota', left: 0 };
/** A failed tool's result, and what its message holds. */
const FAILED: readonly (readonly [result: object, words: readonly string[]])[] = [
  [{ structuredContent: structured }, ['{"reason":"quota","left":0}']],
  [{ structuredContent: 'quota' }, ['quota']],
  [{ content: [said], structuredContent: structured }, ['said', '"reason":"quota"']],
  [{ content: [{ type: 'resource', resource: { uri: 'log:///1', text: 'disk full' } }] }, ['disk full', 'log:///1']],
  [{ content: [{ type: 'resource', resource: { uri: 'log:///1', blob: 'aGk=' } }] }, ['log:///1']],
  [{ content: [{ type: 'resource_link', uri: 'log:///1', name: 'the log' }] }, ['log:///1', 'the log']],
  [{ content: [{ type: 'image', data: 'aGk=', mimeType: 'image/png' }] }, ['image/png']],
  [{ content: [{ type: 'chart' }] }, ['chart']],
  [{ content: [{ type: 'error', message: 'quota' }] }, ['error', 'quota']],
  [{ content: [{ type: 'text', content: 'quota' }] }, ['quota']],
  [{ content: [{ text: 'quota' }] }, ['quota']],
  [
    { content: [{ type: 'resource', resource: { uri: 'log:///1', mimeType: 'text/plain', blob: 'ZGlzayBmdWxs' } }] },
    ['disk full'],
  ],
  [{ error: { message: 'quota' } }, ['quota']],
  [{ _meta: { reason: 'quota' } }, ['quota']],
  [{ structuredContent: '' }, ['without a reason']],
  [{ structuredContent: {}, content: 'quota' }, ['quota']],
  [{ content: 7 }, ['7']],
  [{ content: [{ type: 'resource', resource: { text: 'quota' } }] }, ['quota']],
  [{ content: [{ type: 'resource_link', description: 'quota' }] }, ['quota']],
  [{ content: [{ type: 'resource', resource: { uri: 'log:///1', blob: 'cXVvdGE=' } }] }, ['quota']],
  [{ content: [{ type: 'image', url: 'https://quota' }] }, ['quota']],
  [{ content: [{ type: 'image', data: 'no base64!', mimeType: 'image/png', alt: 'quota' }] }, ['quota']],
  [{ content: [{ type: 'resource_link', uri: 'log:///1', name: 'quota', description: 'left' }] }, ['quota', 'left']],
  [
    { content: [{ type: 'resource', resource: { uri: 'a:b', mimeType: 'application/x-ndjson', blob: 'cXVvdGE=' } }] },
    ['quota'],
  ],
  [{ content: [said], structuredContent: structured, error: { message: 'disk' } }, ['said', '"quota"', 'disk']],
  [{ content: [said], isError: 'true' }, ['said']],
  [{ content: [{ type: 'text', text: ' ' }, said] }, ['said']],
];

test('a failed tool is reported with its whole message, whatever its form', async () => {
  const { says } = await overStdio();
  for (const [result, words] of FAILED) {
    const { error } = await says({ content: [], isError: true, ...result });
    expect(error?.code, JSON.stringify(result)).toBe('MCP_TOOL_ERROR');
    for (const word of words) expect(error?.message, JSON.stringify(result)).toContain(word);
  }
  for (const isError of [true, 'true', 'True', 1])
    expect((await says({ content: [said], isError })).error).toMatchObject({ code: 'MCP_TOOL_ERROR', message: 'said' });
  // Structure that the tool also writes as text is reported once.
  const content = [{ type: 'text', text: '{ "left": 0, "reason": "quota" }' }];
  const { error } = await says({ content, structuredContent: structured, isError: true });
  expect(error?.message).toBe(content[0]?.text);
});

test('an error is reported completely, and ends only its call', async () => {
  const { writes } = await overStdio();
  for (const [written, code, word] of [
    ['{"code":-32000,"message":"no","data":{"reason":"quota"}}', 'MCP_ERROR', 'quota'],
    ['{"code":-32602,"message":"no","data":"city is missing"}', 'INVALID_PARAMS', 'city is missing'],
    ['{"code":null,"message":"no"}', 'MCP_ERROR', 'no'],
    ['{"message":"quota","data":null}', 'MCP_ERROR', 'quota'],
    ['"quota"', 'MCP_ERROR', 'quota'],
  ]) {
    const { error } = await writes([`{"jsonrpc":"2.0","id":"ID","error":${written}}`]);
    expect(error, written).toMatchObject({ code, message: expect.stringContaining(word ?? '') });
    expect(contentOf(await writes([answer]))).toBe('said');
  }
});
