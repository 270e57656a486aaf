import { PassThrough } from 'node:stream';
import { expect, onTestFinished, test } from 'vitest';
import { StdioConnection } from '../../../src/cli/processes/stdio-connection.ts';
import { signal } from '../../helpers/signal.ts';

async function open() {
  const [input, output] = [new PassThrough(), new PassThrough()];
  const ended = signal();
  const connection = new StdioConnection({
    input: input as unknown as NodeJS.ReadStream,
    output: output as unknown as NodeJS.WriteStream,
    answerLimitMs: 0,
    onEnd: ended.fire,
  });
  const messages: unknown[] = [];
  connection.onmessage = (message) => void messages.push(message);
  await connection.start();
  return { connection, input, output, messages, ended: ended.promise };
}

test('messages come whole, whatever the pieces of the input are', async () => {
  const message = { jsonrpc: '2.0', method: 'notifications/message', params: { data: 'Añna 😀', list: [null, 1] } };
  const text = Buffer.from(`${JSON.stringify(message)}\n\r\n\n${JSON.stringify({ ...message, params: null })}\r\n`);
  for (const size of [1, 2, 3, 7, text.length]) {
    const { input, messages, ended } = await open();
    for (let start = 0; start < text.length; start += size) input.write(text.subarray(start, start + size));
    input.end();
    await ended;
    expect(messages).toEqual([
      { ...message, params: { data: 'Añna 😀', list: [1] } },
      { jsonrpc: '2.0', method: 'notifications/message' },
    ]);
  }
});

test('a message that would lose something is answered, and the next one is read', async () => {
  const { input, output, messages, ended } = await open();
  const args = ['{"__proto__":1}', '{"n":9007199254740993}', '{"n":1e999}', '{"n":1}', '""', '[]', '7'];
  for (const [id, text] of args.entries())
    input.write(`{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"t","arguments":${text}}}\n`);
  input.write('{"id":7,"method":"ping"}\n{"jsonrpc":"2.0","id":8,"method":"ping","params":[]}\n[]\nhello\n');
  input.write('{"jsonrpc":"2.0","id":9,"result":5}\n');
  input.end();
  await ended;
  expect(messages).toMatchObject([{ id: 3, params: { arguments: { n: 1 } } }]);
  const answers = String(output.read()).trim().split('\n');
  expect(answers.map((answer) => JSON.parse(answer))).toMatchObject([
    { id: 0, error: { code: -32_602 } },
    { id: null, error: { code: -32_700, message: expect.stringContaining('9007199254740993') } },
    { id: null, error: { code: -32_700, message: expect.stringContaining('1e999') } },
    ...['""', '[]', '7'].map((got, index) => ({
      id: 4 + index,
      error: { code: -32_602, message: `params.arguments must be an object; got ${got}.` },
    })),
    { id: 7, error: { code: -32_600 } },
    { id: 8, error: { code: -32_600 } },
    { id: null, error: { code: -32_600 } },
    { id: null, error: { code: -32_700 } },
  ]);
});

test.each([
  [
    { id: 1, method: 'ping', params: {}, result: null, error: null },
    { id: 1, method: 'ping', params: {} },
  ],
  [
    { id: 2, method: null, params: null, result: { a: null }, error: null },
    { id: 2, result: { a: null } },
  ],
  [
    { id: 3, result: null, error: { code: 1, message: 'no' } },
    { id: 3, error: { code: 1, message: 'no' } },
  ],
  [
    { id: 4, result: null, error: null },
    { id: 4, result: {} },
  ],
])('a message with all members, null among them, is read: %j', async (sent, read) => {
  const { input, output, messages, ended } = await open();
  input.end(`${JSON.stringify({ jsonrpc: '2.0', ...sent })}\n`);
  await ended;
  expect(messages).toEqual([{ jsonrpc: '2.0', ...read }]);
  expect(output.read()).toBeNull();
});

test('a batch is as many messages', async () => {
  const { input, messages, ended } = await open();
  const message = { jsonrpc: '2.0', method: 'notifications/message', params: { data: 1 } };
  input.end(`${JSON.stringify([message, { ...message, params: null }])}\n`);
  await ended;
  expect(messages).toEqual([message, { jsonrpc: '2.0', method: 'notifications/message' }]);
});

test('a line without an end closes the connection, as the SDK does', async () => {
  const { input, messages, ended } = await open();
  const piece = Buffer.alloc(1_024 * 1_024, 'x');
  for (let count = 0; count < 12; count += 1) input.write(piece);
  await ended;
  expect(messages).toEqual([]);
});

test('many answers that wait for a slow reader are no leak of listeners', async () => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error) => void warnings.push(warning);
  process.on('warning', onWarning);
  onTestFinished(() => void process.off('warning', onWarning));
  const { connection, output } = await open();
  const result = { text: 'x'.repeat(output.writableHighWaterMark) };
  const answers = Array.from({ length: 20 }, (_, id) => connection.send({ jsonrpc: '2.0', id, result }));
  output.resume();
  await Promise.all(answers);
  expect(warnings).toEqual([]);
});
