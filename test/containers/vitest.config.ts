import { defineConfig } from 'vitest/config';

/** `npm run test:containers`: slow, and nothing without a Docker daemon. */
export default defineConfig({
  test: {
    include: ['test/containers/*.test.ts'],
    fileParallelism: false,
    testTimeout: 300_000,
    hookTimeout: 600_000,
  },
});
