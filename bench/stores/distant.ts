/** A Redis that is some way off: what goes to it and comes from it is held up for a while, as by a network. */
import { once } from 'node:events';
import { type AddressInfo, createServer, connect as open, type Socket } from 'node:net';
import type { BenchServer } from './redis.ts';

/** Takes over the server: it stops together with the way to it. `delayMs`: each way; timers add up to a millisecond to it. */
export async function distant(server: BenchServer, delayMs: number): Promise<BenchServer> {
  const sockets = new Set<Socket>();
  const listener = createServer((client) => {
    const redis = open(new URL(server.url).pathname);
    holdUp(client, redis, delayMs);
    holdUp(redis, client, delayMs);
    for (const socket of [client, redis]) sockets.add(socket.once('close', () => sockets.delete(socket)));
  });
  await once(listener.listen(0, '127.0.0.1'), 'listening');
  const { port } = listener.address() as AddressInfo;
  return {
    ...server,
    url: `redis://127.0.0.1:${port}`,
    stop: async () => {
      listener.close();
      for (const socket of sockets) socket.destroy();
      await server.stop();
    },
  };
}

/** Timers of the same length end in the order in which they began. */
function holdUp(from: Socket, to: Socket, delayMs: number): void {
  from.setNoDelay(true);
  from.on('data', (chunk) => setTimeout(() => to.write(chunk), delayMs));
  from.on('close', () => setTimeout(() => to.destroySoon(), delayMs));
  // Either end may go while something is still under way.
  from.on('error', () => {});
}
