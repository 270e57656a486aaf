/** Bodies are taken as they were sent, or refused: nothing in them is replaced, rounded or lost. */
import { describe, expect, test } from 'vitest';
import { defineUntypedTool } from '../../../../src/shared/tools/tool-forms.ts';
import { uuidv7 } from '../../../../src/shared/util/time.ts';
import { startRig } from '../rig.ts';

/** Says as a text what it was given. */
const repeat = defineUntypedTool({
  name: 'repeat',
  version: '1.0.0',
  description: 'Says what it was given.',
  tier: 'read-only',
  inputSchema: { type: 'object' },
  run: (params: unknown) => ({ output: JSON.stringify(params) }),
});

const envelope = (params: string) =>
  JSON.stringify({
    contractVersion: '1.1',
    requestId: uuidv7(),
    toolName: 'repeat',
    toolNamespace: 'tools',
    target: { sessionKey: 's', actorId: 'ada' },
    payload: { version: '1.0', params: 'PARAMS' },
    transport: { dedupeMode: 'enforced', retryBudget: { maxAttempts: 4, maxElapsedMs: 30_000 } },
    control: {},
    trace: {},
  }).replace('"PARAMS"', params);
const short = (params: string) => `{"tool":"repeat","session":"s","params":${params}}`;

/** Of a body of text and bytes. */
const joined = (text: string, odd: readonly number[]) => {
  const [before = '', after = ''] = text.split('ODD');
  return new Uint8Array(Buffer.concat([Buffer.from(before), Buffer.from(odd), Buffer.from(after)]));
};

describe('a body of the HTTP API', () => {
  test('that is not UTF-8 is refused, at every route that takes one, and at /mcp', async () => {
    const rig = await startRig({ tools: [repeat] });
    const post = (path: string, raw: Uint8Array<ArrayBuffer>) => rig.ask(path, { method: 'POST', raw });
    for (const odd of [[0xff], [0xe4], [0xc3, 0x28], [0xed, 0xa0, 0x80]]) {
      for (const path of ['/v1/calls', '/v1/sessions', '/debug/tool-reliability', '/v1/approvals/actions'])
        expect(await post(path, joined(short('{"text":"ODD"}'), odd)), path).toMatchObject({
          status: 400,
          body: { error: { code: 'CONTRACT_INVALID', message: 'The body is not UTF-8.', issues: [{ path: 'body' }] } },
        });
      const message =
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"repeat","arguments":{"a":"ODD"}}}';
      const asked = await post('/mcp', joined(message, odd));
      expect(asked).toMatchObject({ status: 400, body: { error: { code: -32_700 } } });
      expect(asked.body.error.message).toContain('not UTF-8');
    }
    expect((await rig.pawl.calls.list()).length).toBe(0);
  });

  test.each(['9007199254740993', '-9007199254740993', '1152921504606846977', '12345678901234567890123', '1e999'])(
    'with the number %s, which would become another one, is refused by name',
    async (number) => {
      const rig = await startRig({ tools: [repeat] });
      for (const raw of [short(`{"a":[{"id":${number}}]}`), envelope(`{"a":[{"id":${number}}]}`)]) {
        const { status, body } = await rig.ask('/v1/calls', { method: 'POST', raw });
        expect({ status, code: body.error.code }).toEqual({ status: 400, code: 'CONTRACT_INVALID' });
        expect(body.error.message).toContain(number);
        expect(body.error.message).toContain('"id"');
      }
      const raw = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"repeat","arguments":{"id":${number}}}}`;
      const asked = await rig.ask('/mcp', { method: 'POST', raw });
      expect(asked).toMatchObject({ status: 400, body: { error: { message: expect.stringContaining(number) } } });
    },
  );

  test.each([
    '{"a":9007199254740991}',
    '{"a":9007199254740992}',
    '{"a":"9007199254740993"}',
    '{"__proto__":{"a":1}}',
    '{"__proto__":1,"b":{"__proto__":[{"__proto__":2}]},"constructor":3}',
    '{"toString":1,"hasOwnProperty":2,"":3}',
  ])('with the parameters %s reaches its tool as it was sent', async (params) => {
    const rig = await startRig({ tools: [repeat] });
    for (const raw of [short(params), envelope(params)]) {
      const { status, body } = await rig.ask('/v1/calls?wait=20000', { method: 'POST', raw });
      expect({ status, content: body.output?.content ?? body }).toEqual({ status: 200, content: params });
    }
  });

  test('at /mcp is refused where the protocol’s library would lose an argument', async () => {
    const rig = await startRig({ tools: [repeat] });
    const raw =
      '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"repeat","arguments":{"__proto__":{"a":1}}}}';
    for (const sent of [raw, `[${raw}]`])
      expect(await rig.ask('/mcp', { method: 'POST', raw: sent })).toMatchObject({
        status: 400,
        body: { id: 7, error: { code: -32_602, message: expect.stringContaining('__proto__') } },
      });
  });

  test('whose members are no parameters says which one is unknown, also one called __proto__', async () => {
    const rig = await startRig({ tools: [repeat] });
    const raw = '{"tool":"repeat","session":"s","__proto__":{"params":{}}}';
    const { status, body } = await rig.ask('/v1/calls', { method: 'POST', raw });
    expect({ status, code: body.error.code }).toEqual({ status: 400, code: 'CONTRACT_INVALID' });
    expect(body.error.message).toContain('__proto__');
  });
});
