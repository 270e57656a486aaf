import { createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { pending } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { connect } from './http-rig.ts';
import type { TestService } from './service.ts';

/** A service that answers each request with these bytes, and then closes the connection unless it falls silent. */
async function startRawService(bytes: string, isSilent: boolean): Promise<TestService> {
  const asked: never[] = [];
  const server = createServer((socket) => {
    socket
      .on('error', () => undefined)
      .once('data', () => {
        asked.push(undefined as never);
        if (isSilent) socket.write(bytes);
        else socket.end(bytes);
      });
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => void server.close());
  const address = server.address();
  const host = `127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  return { host, url: `http://${host}`, asked };
}

test.each([
  ['that breaks off', 'content-length: 100\r\n\r\n{"a"', false],
  ['that falls silent', 'content-length: 100\r\n\r\n{"a"', true],
  ['that is too large', `content-length: 2000\r\n\r\n${'x'.repeat(2_000)}`, false],
  ['that is not compressed as it says', 'content-encoding: gzip\r\ncontent-length: 7\r\n\r\nno gzip', false],
  ['of an unknown encoding', 'content-encoding: zstd\r\ncontent-length: 2\r\n\r\nhm', false],
  [
    'that is nested too deeply',
    `content-type: application/json\r\n\r\n${'['.repeat(1_200)}${']'.repeat(1_200)}`,
    false,
  ],
])('a status counts without its page, %s', async (_fault, rest, isSilent) => {
  for (const [status, attempts] of [
    [429, 4],
    [404, 1],
  ] as const) {
    const service = await startRawService(`HTTP/1.1 ${status} No\r\nretry-after: 0\r\n${rest}`, isSilent);
    const { session } = await connect(
      service,
      { method: 'POST', maxResponseBytes: 1_000, secrets: { token: { env: 'PAWL_SECRET_API' } } },
      { spec: { effects: 'once' } },
    );
    const { error } = await session.call('ask', { id: '1' });
    expect(error).toMatchObject({ code: `HTTP_${status}` });
    expect(error).not.toHaveProperty('mayHaveHappened');
    expect(service.asked).toHaveLength(attempts);
  }
});

test('a call is run again, and leaves no doubt, where it ended before its request was sent', async () => {
  const { host, asked } = await startRawService('', true);
  const service = { host, url: `https://${host}`, asked };
  const spec = { effects: 'once', timeoutMs: 300 };
  const { session } = await connect(service, { method: 'POST' }, { spec });
  const { error, attempts } = await session.call('ask', { id: '1' });
  expect(error?.code).toBe('TIMEOUT');
  expect(error).not.toHaveProperty('mayHaveHappened');
  expect(attempts).toBe(4);
  const { callId, result } = pending(await session.submit('ask', { id: '2' }));
  await eventually(async () => asked.length === 5, { what: 'the fifth connection' });
  expect(await session.cancel(callId)).toMatchObject({ settlement: 'cancelled' });
  expect((await result).error).not.toHaveProperty('mayHaveHappened');
});
