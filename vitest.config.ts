import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import manifest from './package.json' with { type: 'json' };

/** `import 'pawl'` in a test means the sources, and the same module instances that relative imports give. */
const selfReferences = Object.entries(manifest.exports)
  .filter(([, target]) => target.endsWith('.ts'))
  .map(([name, target]) => ({
    find: new RegExp(`^${name.replace('.', 'pawl')}$`),
    replacement: new URL(target, import.meta.url).pathname,
  }));

// Test files, and the processes that they start, load the same modules: compiled code is kept between them.
process.env['NODE_COMPILE_CACHE'] ??= fileURLToPath(new URL('node_modules/.cache/tests', import.meta.url));

/** Files that start processes take longest: they come first, so that none of them is left alone at the end. */
const STARTS_PROCESSES =
  /\/test\/(chaos|cli|journeys|dashboards|examples|index|bundled|workers\/(connectors|context|sandbox|workspace)|shared\/store\/redis)\b/;

/** Files that replace a module of Pawl's or the clock of their process, give a module's cache other content, or count what is in memory. */
const ALONE = [
  'test/model/broken-rules.test.ts',
  'test/model/calls.test.ts',
  'test/producer/adapters/notices.test.ts',
  'test/shared/store/clock-follower.test.ts',
  'test/shared/store/redis/command-timeout.test.ts',
  'test/workers/circuits/node-circuit.test.ts',
  'test/workers/context/remote-terminal.test.ts',
  'test/workers/sandbox/isolation.test.ts',
];

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return sorted.toSorted(
      (a, b) => Number(STARTS_PROCESSES.test(b.moduleId)) - Number(STARTS_PROCESSES.test(a.moduleId)),
    );
  }
}

export default defineConfig({
  resolve: { alias: selfReferences },
  test: {
    reporters: ['default', 'test/helpers/flaky-reporter.ts'],
    globalSetup: ['test/helpers/global-setup.ts'],
    pool: 'forks',
    // A process runs many files, and loads Pawl once for all of them.
    projects: [
      {
        extends: true,
        test: {
          name: 'together',
          include: ['test/**/*.test.ts'],
          exclude: ['test/containers/**', ...ALONE],
          isolate: false,
        },
      },
      { extends: true, test: { name: 'alone', include: ALONE } },
    ],
    sequence: { sequencer: LongestFirst },
    // Most tests wait for processes and timers; one worker for each core leaves the cores idle.
    maxWorkers: 6,
    // Tests wait for signals: a limit ends only what would never end, also where processes take long to start.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 30_000 } },
    teardownTimeout: 10_000,
    tags: [
      { name: 'slow', description: 'Takes long and seldom fails: not in `npm test`, but in `npm run test:slow`.' },
    ],
  },
});
