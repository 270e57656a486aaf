/** Starts on servers of a test’s own. */
import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, vi } from 'vitest';
import type { SettingsInput } from '../../../../src/shared/config/config.ts';
import { resolveSettings } from '../../../../src/shared/config/resolve-settings.ts';
import { openBackend } from '../../../../src/shared/store/backend.ts';
import { findRedisBinary } from '../../../../src/shared/store/redis/redis-binary.ts';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { type Server, startServer } from '../../../chaos/server.ts';
import { makeCertificates } from '../../../helpers/certificates.ts';
import { temporaryFolder } from '../../../helpers/context.ts';
import { freePort } from '../../../helpers/free-port.ts';
import { startPawl, startProgram } from '../../../helpers/process.ts';

export async function startOn(
  redisUrl: string,
  prefix = 'pawl',
  mode: 'fail-fast' | 'patient' = 'patient',
  options: Partial<SettingsInput> = {},
): Promise<void> {
  const settings = resolveSettings({ options: { redisUrl, prefix, ...options } });
  const backend = await openBackend({ settings, name: 'test', mode, log: silentLogger });
  await backend.close();
}

export async function serverWith(...options: readonly string[]): Promise<Server> {
  const server = await startServer(temporaryFolder(), options);
  onTestFinished(() => server[Symbol.asyncDispose]());
  return server;
}

export async function startTlsServer(): Promise<{ readonly port: number }> {
  const port = await freePort();
  await serverWith(...makeCertificates('localhost').serverOptions(port));
  return { port };
}

/** Watches a server under the name `watched`; answers its own port. */
export async function startSentinel(folder: string, watchedPort: number): Promise<number> {
  const port = await freePort();
  const file = join(folder, 'sentinel.conf');
  writeFileSync(
    file,
    `port ${port}\nbind 127.0.0.1\ndir ${folder}\nsentinel monitor watched 127.0.0.1 ${watchedPort} 1\n`,
  );
  const binary = await findRedisBinary();
  if (binary.kind !== 'executable') throw new Error('needs a redis-server program');
  const sentinel = startProgram(binary.command, [file, '--sentinel']);
  await sentinel.line('monitor master watched');
  return port;
}

/** The address of a server that answers each command as the test says. */
export async function answering(answerTo: (command: string) => string): Promise<string> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      const commands = bytes.toString().matchAll(/\*\d+\r\n\$\d+\r\n(\w+)\r\n/g);
      for (const [, command = ''] of commands) socket.write(answerTo(command.toLowerCase()));
    });
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => void server.close());
  return `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** The limit of a start is 300 ms. */
export function hurryStart(): void {
  const start = globalThis.setTimeout;
  const hurry = (run: () => void, ms?: number) => start(run, ms === 15_000 ? 300 : ms);
  vi.spyOn(globalThis, 'setTimeout').mockImplementation(hurry as typeof setTimeout);
  onTestFinished(() => void vi.restoreAllMocks());
}

/** A command that needs Redis ends with one sentence. */
export async function expectSentence(redisUrl: string, code: number, sentence: RegExp): Promise<void> {
  const process = startPawl(['calls'], { cwd: temporaryFolder(), env: { REDIS_URL: redisUrl } });
  expect(await process.ended, process.stderr()).toMatchObject({ code });
  expect(process.stderr()).toMatch(sentence);
  expect(process.stderr().trim().split('\n')).toHaveLength(1);
}
