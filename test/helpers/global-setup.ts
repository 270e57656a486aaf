import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { startEmbeddedRedis } from '../../src/shared/store/redis/embedded-redis.ts';
import { detectIsolation } from '../../src/workers/context/processes.ts';
import { buildPackage } from './built-package.ts';
import { eventually } from './signal.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** The Redis that all tests share; see `createWorld`. */
    redisUrl: string;
    /** The folder of the built package; see `inBuiltPackage`. */
    builtPackage: string;
    /** Of programs that a test runs, unless it asks for another one: the default where a sandbox works here, else `off`. */
    sandbox: 'preferred' | 'off';
  }
}

/** One real Redis for the whole run: the one that `REDIS_URL` names, or a private one in a folder of its own. */
export default async function setup(project: TestProject): Promise<(() => Promise<void>) | undefined> {
  project.provide('builtPackage', buildPackage());
  const sandbox = (await detectIsolation()).includes('bubblewrap') ? 'preferred' : 'off';
  project.provide('sandbox', sandbox);
  if (sandbox === 'off') process.stdout.write('skipped: what programs do in a sandbox, because none works here\n');
  const given = process.env['REDIS_URL'];
  if (given !== undefined && given !== '') {
    project.provide('redisUrl', given);
    return undefined;
  }
  const dataDir = await mkdtemp(join(tmpdir(), 'pawl-test-'));
  const redis = await startEmbeddedRedis({ dataDir, log: (line) => console.error(line) });
  project.provide('redisUrl', redis.url);
  return async () => {
    await redis.stop();
    // The server writes to the folder until its end, which its keeper marks by removing the endpoint file.
    await eventually(() => !existsSync(join(dataDir, 'redis', 'endpoint.json')), { what: 'the end of the test Redis' });
    await rm(dataDir, { recursive: true, force: true });
  };
}
