/** Odd answers of MCP servers: what a tool did is kept, what is odd is named, and the tool is not run again. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readableResponse } from '../../../src/workers/connectors/mcp/http-response.ts';
import { AnswerReader } from '../../../src/workers/connectors/mcp/incoming.ts';
import { toolResult } from '../../../src/workers/connectors/mcp/results.ts';
import { contentOf } from '../../helpers/fleet.ts';
import { withOddParts } from '../../helpers/odd-values.ts';
import { answer, type Call, overHttp, overStdio, said } from './mcp-odd-server.ts';
import { startMcpFleet } from './mcp-rig.ts';

/** A result with every optional member of the protocol. */
const full = {
  _meta: { note: 'a' },
  isError: false,
  structuredContent: { a: 1, note: null },
  content: [
    { ...said, annotations: { audience: ['user'], priority: 1 }, _meta: {} },
    { type: 'image', data: 'aGk=', mimeType: 'image/png', annotations: {}, _meta: {} },
    {
      type: 'resource',
      resource: { uri: 'file:///a', text: 'A', mimeType: 'text/plain', _meta: {} },
      annotations: {},
      _meta: {},
    },
    {
      type: 'resource_link',
      uri: 'file:///b',
      name: 'b',
      title: 'B',
      description: 'B.',
      mimeType: 'a/b',
      size: 1,
      icons: [],
    },
  ],
};
const REQUIRED = new Set(['type', 'text', 'data', 'uri', 'content', 'resource', 'name', 'audience']);

/** The path to each optional member of a value. */
function optionalPaths(value: unknown, path: readonly (string | number)[] = []): (readonly (string | number)[])[] {
  if (typeof value !== 'object' || value === null || path.at(-1) === 'structuredContent') return [];
  return Object.entries(value).flatMap(([name, member]) => {
    const here = [...path, Array.isArray(value) ? Number(name) : name];
    const isOptional = !Array.isArray(value) && !REQUIRED.has(name) && !(name === 'mimeType' && 'data' in value);
    return [...(isOptional ? [here] : []), ...optionalPaths(member, here)];
  });
}

function withNullAt(value: unknown, [name, ...rest]: readonly (string | number)[]): unknown {
  if (name === undefined) return null;
  const copy = structuredClone(value) as Record<string | number, unknown>;
  copy[name] = withNullAt(copy[name], rest);
  return copy;
}

const paths = optionalPaths(full);

const ODD_BLOCKS: readonly unknown[] = [
  null,
  5,
  [],
  {},
  { type: null, text: 'a' },
  { type: 'text' },
  { type: 'text', text: null },
  { type: 'image' },
  { type: 'image', data: 'no base64!', mimeType: 'image/png' },
  { type: 'audio', data: null, mimeType: null },
  { type: 'resource' },
  { type: 'resource', resource: null },
  { type: 'resource', resource: { text: 'a' } },
  { type: 'resource_link', uri: null, name: 'a' },
  { type: 'chart', points: [1] },
];

/** Lines of output; the last one holds the answer. */
const ODD_LINES: readonly (readonly string[])[] = [
  ['[]', answer],
  ['[null]', answer],
  ['null', answer],
  ['5', answer],
  ['{}', answer],
  ['{"jsonrpc":"2.0"}', answer],
  ['{"jsonrpc":"2.0","method":null}', answer],
  ['{"jsonrpc":"2.0","method":"notifications/message","params":null}', answer],
  ['{"jsonrpc":"2.0","method":"notifications/message","params":[1]}', answer],
  ['{"jsonrpc":"2.0","id":null,"method":"notifications/tools/list_changed"}', answer],
  [`[${answer}]`],
  [`[null,{"jsonrpc":"2.0","method":"notifications/message","params":null},${answer}]`],
  [answer.replace('"id"', '"error":null,"id"')],
  [answer.replace('"id"', '"method":null,"params":null,"id"')],
  [answer.replace('"content"', '"_meta":null,"content"')],
  [answer.replace('"jsonrpc":"2.0",', '')],
  ['{"id":1,"error":"a line of a log"}', answer],
  [answer.replace('"content"', '"isError":"false","content"')],
  [answer.replace('"content"', '"isError":0,"content"')],
  [answer.replace('[{"type":"text","text":"said"}]', '{"type":"text","text":"said"}')],
  [answer.replace('[{"type":"text","text":"said"}]', '"said"')],
  ...['{}', 'false', '""', '{"code":0,"message":""}'].map((error) => [answer.replace('"id"', `"error":${error},"id"`)]),
  [`[[],[${answer}]]`],
  // An ID as a text, and answers to no request, such as to a notification.
  [answer.replace('"ID"', '""ID""')],
  ['{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no such notification"}}', answer],
  ['{"jsonrpc":"2.0","id":null,"result":{}}', answer],
  ['{"jsonrpc":"2.0","result":null}', answer],
  // A second answer is ignored, and the next call has its own.
  [answer, answer],
  [answer, answer.replace('said', 'said again'), answer],
  [answer, '{"jsonrpc":"2.0","id":"ID","error":{"code":-32000,"message":"late"}}'],
  [answer, '{"jsonrpc":"2.0","id":0,"result":{}}'],
];
const printed = (indent: number | string, batch = false) => {
  const message: unknown = JSON.parse(answer);
  return JSON.stringify(batch ? [message] : message, null, indent).split('\n');
};
const unindented = printed(1).map((line) => line.trimStart());
/** Such lines come from programs alone. */
const MIXED_LINES: readonly (readonly string[])[] = [
  ...[2, 4, '\t'].flatMap((indent) => [printed(indent), printed(indent, true)]),
  ['[{', ...printed(2).slice(1, -1), '}]'],
  printed(2).flatMap((line) => [`${line}\r`, '']),
  unindented,
  ['[', ...unindented, ']'],
  ['loading', '{', ...unindented, answer],
  ['{', '"level": 1,', ...unindented],
  ['{', '"level": 1,', answer],
  // What only looks like such a message hides none.
  ['{', answer],
  ['[', '  1,', answer],
  ['{', "  level: 'info'", '}', ...printed(2)],
  ['{', ...printed(2)],
  ['}', answer],
  [`loading ... ${answer}`],
  ...['done', '}', ' {"level":30}', ';', '\u0000', ' "said'].map((rest) => [`${answer}${rest}`]),
  [`\u001b[0m{"jsonrpc":"2.0","method":"notifications/message","params":{}}${answer}`],
];
const messages = [...ODD_LINES, ...MIXED_LINES].map((lines) => lines.map((line) => line.slice(0, 60)).join(' '));

describe('the answer of a tool that has run', () => {
  test('is kept, and the tool is not run again, whichever optional member is null', async () => {
    const { says } = await overStdio();
    expect(paths.length).toBeGreaterThan(15);
    for (const path of paths) {
      const answered = await says(withNullAt(full, path));
      const shown = { at: path.join('.'), status: answered.status, attempts: answered.attempts };
      expect(shown).toEqual({ at: path.join('.'), status: 'success', attempts: 1 });
      const expected = path[0] === 'structuredContent' ? 'said' : { a: 1, note: null };
      expect(contentOf(answered)).toEqual(expected);
    }
  });

  test('is kept beside odd blocks of content, each of which is named', async () => {
    const { says } = await overStdio();
    for (const block of ODD_BLOCKS) {
      const answered = await says({ content: [said, block, { type: 'text', text: 'more' }] });
      const shown = { block, status: answered.status, attempts: answered.attempts, content: contentOf(answered) };
      const content = expect.stringMatching(/^said\n\[(?:left out: .+|a block of .+)\]\nmore$/);
      expect(shown).toEqual({ block, status: 'success', attempts: 1, content });
    }
  });

  test('is its output where it stands in members that are not the protocol’s', async () => {
    const { says } = await overStdio();
    const task = { taskId: 'a', status: 'working' };
    for (const [result, expected] of [
      [{ task }, { task }],
      [{ toolResult: 5, content: null }, { toolResult: 5 }],
      [{ toolResult: 5, content: [said] }, 'said'],
      [{ toolResult: 5, structuredContent: { a: 1 } }, { a: 1 }],
      [{}, ''],
    ])
      expect(contentOf(await says(result))).toEqual(expected);
  });

  test('is kept beside lines and messages that are odd', async () => {
    const { writes } = await overStdio();
    for (const [index, lines] of [...ODD_LINES, ...MIXED_LINES].entries()) {
      const answered = await writes(lines);
      const shown = { at: messages[index], status: answered.status, attempts: answered.attempts };
      expect(shown).toEqual({ at: messages[index], status: 'success', attempts: 1 });
      expect(contentOf(answered)).toBe('said');
    }
  });

  test.each(['application/json', 'text/event-stream'] as const)('is kept over HTTP, too, as %s', async (type) => {
    const { says, writes, calls } = await overHttp(type);
    for (const path of paths.slice(0, 2)) {
      const answered = await says(withNullAt(full, path));
      expect({ at: path.join('.'), status: answered.status }).toEqual({ at: path.join('.'), status: 'success' });
      expect(calls()).toBe(1);
    }
    for (const [index, lines] of ODD_LINES.entries()) {
      const answered = await writes(lines);
      expect({ at: messages[index], status: answered.status, calls: calls() }).toEqual({
        at: messages[index],
        status: 'success',
        calls: 1,
      });
      expect(contentOf(answered)).toBe('said');
    }
  });

  test.each<readonly [string, string | undefined, string]>([
    ['whose type is missing', undefined, answer],
    ['whose type is text', 'text/plain; charset=utf-8', answer],
    ['of JSON-RPC’s own type', 'application/json-rpc', answer],
    ['of another type of JSON', 'application/vnd.example.v1+json; charset=utf-8', answer],
    ['of the type that PHP writes by default', 'text/html; charset=UTF-8', answer],
    ['that ends without an empty line', 'text/event-stream', `data: ${answer}`],
    ['that ends with one line end', 'text/event-stream', `event: message\ndata: ${answer}\n`],
    ['whose event has another name', 'text/event-stream', `event: result\ndata: ${answer}\n\n`],
    ['that is JSON, labelled as events', 'text/event-stream', answer],
    ['whose lines end in CR', 'text/event-stream', `event: message\rdata: ${answer}\r\r`],
    ['whose lines end in CR LF', 'text/event-stream', `event: message\r\ndata: ${answer}\r\n\r\n`],
  ])('is read from a response %s', async (_name, type, body) => {
    const { responds, calls } = await overHttp(type);
    expect(contentOf(await responds(body))).toBe('said');
    expect(calls()).toBe(1);
  });

  test.each(['\n\n', '\r\r', '\r\n\r\n', '\r\n\n', '\n\r\n'])(
    'is delivered when its event ends with %j, although the stream goes on',
    async (end) => {
      const { readable, writable } = new TransformStream<string, string>();
      const response = new Response(readable.pipeThrough(new TextEncoderStream()), {
        headers: { 'content-type': 'text/event-stream' },
      });
      const { body } = readableResponse(response, { server: 'odd', request: 1, onBroken: () => {} });
      void writable.getWriter().write(`data: ${answer}${end}`);
      const { value } = (await body?.getReader().read()) ?? {};
      expect(new TextDecoder().decode(value)).toContain('said');
    },
  );

  test('that is cut is none, whatever its type', async () => {
    for (const type of [undefined, 'text/event-stream']) {
      const { responds } = await overHttp(type);
      const { error } = await responds(`${type === undefined ? '' : 'data: '}${answer.slice(0, -9)}`);
      expect(error?.code).toBe(type === undefined ? 'MCP_PROTOCOL' : 'CONNECTION_RESET');
    }
  });

  test('that is an acknowledgement alone is none, and the call does not wait for its limit', async () => {
    const { responds, calls } = await overHttp('application/json', 202);
    const answered = await responds('');
    expect(answered.error?.message).toContain('HTTP 202');
    expect(calls()).toBe(1);
  });

  test.each([202, 204, 303, 524])('with the status %i and no message leaves open what the tool did', async (status) => {
    const { responds, calls } = await overHttp('text/plain', status, []);
    const code = status === 524 ? 'HTTP_524' : 'MCP_PROTOCOL';
    expect((await responds('')).error).toMatchObject({ code, mayHaveHappened: true });
    expect(calls()).toBe(1);
  });

  test.each(['application/json', 'text/event-stream'] as const)(
    'is not asked for again over HTTP as %s where it is no message',
    async (type) => {
      const { writes, calls } = await overHttp(type);
      const answered = await writes(['{"jsonrpc":"2.0","id":{"an":"object"},"result":{}}']);
      expect(answered.error?.code).toBe('MCP_PROTOCOL');
      expect(calls()).toBe(1);
    },
  );
});

test('an output whose only mismatch is null for an optional member is a success', async () => {
  const fleet = await startMcpFleet();
  const outputSchema = {
    type: 'object',
    properties: { a: { type: 'number' }, note: { type: 'string' } },
    required: ['a'],
    additionalProperties: false,
  };
  const definitions = [{ name: 'says', inputSchema: { type: 'object' }, outputSchema }];
  await writeFile(join(fleet.folder, 'definitions.json'), JSON.stringify(definitions));
  await fleet.bring('odd', fleet.odd());
  const says: Call = (result) => fleet.session.call('says', { result }, { namespace: 'mcp.odd' });
  expect(contentOf(await says({ content: [], structuredContent: { a: 1, note: null } }))).toEqual({ a: 1 });
  expect(contentOf(await says({ content: [{ type: 'text', text: '{"a":2}' }], structuredContent: null }))).toEqual({
    a: 2,
  });
  expect((await says({ content: [], structuredContent: { a: null } })).error?.code).toBe('RESULT_INVALID');
});

const LONG = '12345678901234567890';
const longStructure = `{"id":${LONG},"ids":[{"of":-${LONG}},{"of":1}],"reference":"${LONG}","huge":1e400}`;
const exact = { id: LONG, ids: [{ of: `-${LONG}` }, { of: 1 }], reference: LONG, huge: '1e400' };

test.each(['stdio', 'application/json', 'text/event-stream'] as const)(
  'whole numbers that a number cannot hold keep all digits, over %s',
  async (type) => {
    const { writes } = await (type === 'stdio' ? overStdio() : overHttp(type));
    const lines = [answer.replace('"content"', `"structuredContent":${longStructure},"content"`)];
    expect(contentOf(await writes(lines))).toEqual(exact);
  },
);

test('whole numbers that a number cannot hold fit an output that is declared as numbers', async () => {
  const fleet = await startMcpFleet();
  const item = { type: 'object', properties: { of: { type: 'integer', maximum: 'LARGEST' } } };
  const outputSchema = {
    type: 'object',
    properties: {
      id: { anyOf: [{ type: 'integer' }, { type: 'null' }] },
      ids: { type: 'array', items: item },
      reference: { type: 'string' },
      note: { type: 'string' },
    },
  };
  const definitions = [{ name: 'writes', inputSchema: { type: 'object' }, outputSchema }];
  const written = JSON.stringify(definitions).replaceAll('"LARGEST"', '9223372036854775807');
  await writeFile(join(fleet.folder, 'definitions.json'), written);
  await fleet.bring('odd', fleet.odd());
  const many = Array.from({ length: 30 }, () => `{"of":${LONG.slice(0, 18)}}`).join(',');
  const lines = [
    answer.replace(
      '"content"',
      `"structuredContent":{"id":${LONG},"ids":[${many}],"reference":"${LONG}","note":null},"content"`,
    ),
    answer.replace('"said"', JSON.stringify(`{"id":${LONG},"ids":[],"reference":"${LONG}"}`)),
    answer.replace('"content"', '"structuredContent":{"id":"many"},"content"'),
  ];
  const says = (line: string) => fleet.session.call('writes', { lines: [line] }, { namespace: 'mcp.odd' });
  const ids = Array.from({ length: 30 }, () => ({ of: LONG.slice(0, 18) }));
  expect(contentOf(await says(lines[0] ?? ''))).toEqual({ id: LONG, ids, reference: LONG });
  expect(contentOf(await says(lines[1] ?? ''))).toEqual({ id: LONG, ids: [], reference: LONG });
  expect((await says(lines[2] ?? '')).error?.code).toBe('RESULT_INVALID');
});

test.each(['stdio', 'application/json', 'text/event-stream'] as const)(
  'what is nested too deep is left out of an answer and named, over %s',
  async (type) => {
    const { writes } = await (type === 'stdio' ? overStdio() : overHttp(type));
    const deep = `${'['.repeat(100_000)}1${']'.repeat(100_000)}`;
    for (const member of [
      `"structuredContent":{"a":${deep}},"content":[]`,
      `"content":[{"type":"chart","a":${deep}}]`,
    ]) {
      const answered = await writes([`{"jsonrpc":"2.0","id":"ID","result":{${member}}}`]);
      expect(answered).toMatchObject({ status: 'success', attempts: 1 });
    }
    expect(contentOf(await writes([answer]))).toBe('said');
  },
);

const CONTENTS = { uri: 'file:///a', text: 'A', mimeType: 'text/plain' };
test.each([
  ['tools/call', full],
  ['tools/list', { tools: [{ name: 'a', inputSchema: {} }], nextCursor: 'a' }],
  ['resources/read', { contents: [CONTENTS], _meta: {} }],
  [
    'initialize',
    { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'a', version: '1' } },
  ],
])('an answer to %s can be read with any value at any place', (method, result) => {
  for (const odd of withOddParts(result)) {
    const answers = new AnswerReader();
    answers.recordRequest({ jsonrpc: '2.0', id: 1, method });
    const message = { jsonrpc: '2.0', id: 1, result: odd as Record<string, unknown> } as const;
    answers.read(message);
    if (method === 'tools/call') expect(toolResult(message.result as never)).toHaveProperty('output');
  }
});

test.each([
  ['another text', { a: 1 }, ['Found one.'], ['Found one.']],
  ['its JSON', { b: 2, a: 1 }, ['{\n  "a": 1, "b": 2\n}', ' '], undefined],
  ['a list in a member, of which each text is an item', { result: [{ a: 1 }, 'x'] }, ['{"a":1}', 'x'], undefined],
  ['a text in a member', { result: '5' }, ['5'], undefined],
  ['its JSON and another text', { a: 1 }, ['{"a":1}', 'Ask again.'], ['Ask again.']],
])(
  'structured content beside %s: a model reads both, and nothing twice',
  (_what, structuredContent, texts, expected) => {
    const content = texts.map((text) => ({ type: 'text' as const, text }));
    expect(toolResult({ content, structuredContent })).toMatchObject({ output: structuredContent });
    expect(toolResult({ content, structuredContent }).content?.map((block) => 'text' in block && block.text)).toEqual(
      expected,
    );
  },
);

test('a member with the name of a prototype is kept in structured content', async () => {
  const { writes } = await overStdio();
  const stated = '{"__proto__":{"a":1},"constructor":2,"below":{"__proto__":3}}';
  const result = await writes([answer.replace('"content"', `"structuredContent":${stated},"content"`)]);
  expect(JSON.stringify(contentOf(result))).toBe(stated);
});

const unread = (rest: string) => ({ text: `[left out: contents without text or data in Base64${rest}]` });
test.each<[unknown, readonly object[]]>([
  [{ contents: { uri: 'a:b', text: 'alone' } }, [{ uri: 'a:b', text: 'alone' }]],
  [{ contents: 'a text' }, [{ uri: '', text: 'a text' }]],
  [{ contents: ['a text', 5] }, [{ text: 'a text' }, unread(': 5')]],
  [{ uri: 'a:b', text: 'flat' }, [{ uri: 'a:b', text: 'flat' }]],
  [{ content: [{ type: 'text', text: 'as of a tool' }] }, [{ text: 'as of a tool' }]],
  [{ contents: [{ uri: 'a:b', text: { x: 1 } }] }, [{ uri: 'a:b', ...unread(': {"uri":"a:b","text":{"x":1}}') }]],
  [{ contents: null }, []],
  [{}, []],
])('of the contents %j of a resource nothing is lost', (result, expected) => {
  const answers = new AnswerReader();
  answers.recordRequest({ jsonrpc: '2.0', id: 1, method: 'resources/read' });
  const message = { jsonrpc: '2.0', id: 1, result: result as Record<string, unknown> } as const;
  answers.read(message);
  expect(message.result).toMatchObject({ contents: expected });
});
