import { defineConfig } from 'vitest/config';
import manifest from './package.json' with { type: 'json' };

/** `import 'pawl'` in a test means the sources, and the same module instances that relative imports give. */
const selfReferences = Object.entries(manifest.exports)
  .filter(([, target]) => target.endsWith('.ts'))
  .map(([name, target]) => ({
    find: new RegExp(`^${name.replace('.', 'pawl')}$`),
    replacement: new URL(target, import.meta.url).pathname,
  }));

export default defineConfig({
  resolve: { alias: selfReferences },
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/containers/**'],
    globalSetup: ['test/helpers/global-setup.ts'],
    pool: 'forks',
    // Most tests wait for processes and timers; one worker for each core leaves the cores idle.
    maxWorkers: 3,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    teardownTimeout: 10_000,
  },
});
