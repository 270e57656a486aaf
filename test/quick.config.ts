import { defineConfig, mergeConfig } from 'vitest/config';
import whole from '../vitest.config.ts';

/** The rules, the sources and the pages: no Redis, no process, under a minute. */
const quick = defineConfig({
  test: {
    include: ['test/shared/**/*.test.ts', 'test/{architecture,glossary,requirements,lockfile}.test.ts'],
    // These open a fleet, or Redis.
    exclude: ['test/shared/store/**', '**/golden.test.ts', '**/no-arguments.test.ts'],
    isolate: false,
    pool: 'forks',
    maxWorkers: 2,
  },
});
const { projects: _, globalSetup: __, ...shared } = whole.test ?? {};
export default mergeConfig({ ...whole, root: new URL('..', import.meta.url).pathname, test: shared }, quick);
