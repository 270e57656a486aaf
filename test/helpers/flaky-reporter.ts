import type { Reporter, TestCase } from 'vitest/node';

/** Names the tests that passed only when they were repeated (`--retry`): a file that passes does not show them. */
export default class FlakyReporter implements Reporter {
  readonly #flaky: string[] = [];

  onTestCaseResult(test: TestCase): void {
    if (test.diagnostic()?.flaky === true) this.#flaky.push(`${test.module.relativeModuleId} > ${test.fullName}`);
  }

  onTestRunEnd(): void {
    for (const name of this.#flaky.splice(0)) console.log(`passed only when it was repeated: ${name}`);
  }
}
