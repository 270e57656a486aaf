/** A port for a server that a test starts. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

/** Systems take the ports of outgoing connections from 32,768 on, and could take one before the server listens. */
const [LOWEST, HIGHEST] = [10_000, 32_000];

export async function freePort(): Promise<number> {
  for (;;) {
    const port = LOWEST + Math.floor(Math.random() * (HIGHEST - LOWEST));
    const listener = createServer().listen(port, '127.0.0.1');
    try {
      await once(listener, 'listening');
      await new Promise((closed) => listener.close(closed));
      return port;
    } catch {
      await pause(1);
    }
  }
}
