/** The names that agent runtimes use: a wrapper around the execution of tools, over the local runner, and the classifier of errors. */
import type { ToolResultEnvelope } from '../shared/calls/envelope.ts';
import { type ClassificationOverrides, classify } from '../shared/errors/classify-error.ts';
import type { Failure } from '../shared/errors/failure.ts';
import { checkMembers, checkObject, invalidArgument } from '../shared/schema/known-members.ts';
import type { AnyTool, InputOf, OutputOf } from '../shared/tools/tool.ts';
import { quoteValue } from '../shared/util/text/quote-value.ts';
import type { LocalRunnerOptions } from './compose-runner.ts';
import type { LocalRunner, RunOptions } from './runner.ts';

/** Runs a tool as the fleet would: each call once, retried, behind a circuit. Resolves with an envelope for every ending. */
export type ReliableExecution<T extends AnyTool> = (
  params: InputOf<T>,
  options?: RunOptions,
) => Promise<ToolResultEnvelope<OutputOf<T>>>;

/**
 * Puts the reliability layer around tools that a program runs itself: idempotency, retries, circuits, time limits and permission, as in a
 * fleet, without Redis. The wrapped tools share a store; `settings.reliability` switches parts of the layer off.
 *
 * ```ts
 * await using middleware = new ToolReliabilityMiddleware();
 * const send = middleware.wrap(sendMail);
 * const result = await send({ to: 'ada@example.com' }, { idempotencyKey: 'welcome-1' });
 * ```
 */
export class ToolReliabilityMiddleware implements AsyncDisposable {
  readonly #options: Omit<LocalRunnerOptions, 'tools'>;
  #store: Promise<LocalRunnerOptions['store']> | undefined;
  readonly #runners: Promise<LocalRunner>[] = [];

  constructor(options: Omit<LocalRunnerOptions, 'tools'> = {}) {
    checkObject('options', options);
    this.#options = options;
  }

  wrap<T extends AnyTool>(tool: T): ReliableExecution<T> {
    let runner: Promise<LocalRunner> | undefined;
    return async (params, options) => {
      if (runner === undefined) {
        runner = this.#start(tool);
        this.#runners.push(runner);
      }
      return (await runner).run(tool, params, options);
    };
  }

  async #start(tool: AnyTool): Promise<LocalRunner> {
    // Loaded on demand: a program that only imports the class does not load the runner.
    const { createLocalRunner } = await import('./run-tool.ts');
    this.#store ??= this.#openStore();
    const store = await this.#store;
    return createLocalRunner({ ...this.#options, tools: [tool], ...(store !== undefined && { store }) });
  }

  async #openStore(): Promise<LocalRunnerOptions['store']> {
    const { store, clock } = this.#options;
    if (store !== undefined) return store;
    const { InMemoryDedupeStore } = await import('../shared/store/dedupe/dedupe-memory.ts');
    return new InMemoryDedupeStore(clock === undefined ? {} : { clock });
  }

  /** Waits for running calls, for as long as a worker's drain may take. */
  async close(): Promise<void> {
    // The caller of a tool whose runner could not start has its error.
    const started = await Promise.all(this.#runners.map((runner) => runner.catch(() => undefined)));
    await Promise.all(started.map((runner) => runner?.close()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Turns anything that a tool can throw into a failure: its code, whether a retry may help, whether it counts against the circuit. */
export function toolCallErrorClassifier(thrown: unknown, overrides: ClassificationOverrides = {}): Failure {
  checkMembers('overrides', overrides, ['retriableCodes', 'terminalCodes']);
  for (const [name, codes] of Object.entries(overrides))
    if (codes !== undefined && !(Array.isArray(codes) && codes.every((code) => typeof code === 'string')))
      throw invalidArgument(`overrides.${name}`, `must be a list of texts; got ${quoteValue(codes)}`);
  return classify(thrown, overrides);
}
