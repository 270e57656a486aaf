import { createRedisBackend } from 'bullmq';
import { expect, test } from 'vitest';
import { ignoreLateErrors } from '../../../../src/shared/store/redis/ioredis/late-errors.ts';

test('an error that Redis sends after BullMQ has closed its connections ends no process', async () => {
  const connection = { host: '127.0.0.1', port: 1 };
  const backend = createRedisBackend('queue', { connection }, { withBlockingConnection: true });
  backend.on('error', () => {});
  ignoreLateErrors(backend);
  const clients = [backend['connection'], backend['blockingConnection']].map(
    (each) => (each as unknown as { readonly _client: NodeJS.EventEmitter })._client,
  );
  await backend.close(true);
  for (const client of clients) expect(client.emit('error', new Error('ERR max number of clients reached'))).toBe(true);
});
