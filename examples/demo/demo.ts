/**
 * `pawl demo`: the main job on real input, everything embedded in a temporary folder: a private Redis, three worker processes,
 * a local HTTP service. Shows what happened to each call, and why, and checks that it should have.
 */

import { Mismatch } from './assertions.ts';
import { CHAPTERS } from './chapters.ts';
import { Stage, type Summary } from './stage.ts';
import { Table } from './table.ts';

export interface DemoOptions {
  /** One line of JSON per call, and one for the summary, instead of the table. */
  readonly json: boolean;
  readonly out: NodeJS.WriteStream;
  readonly environment: NodeJS.ProcessEnv;
  /** Aborting ends the demo early; it still cleans up. */
  readonly signal?: AbortSignal;
}

/** How the demo ended. */
type Ending =
  | { readonly kind: 'as expected'; readonly summary: Summary }
  /** `log` has the last lines that workers wrote about errors. */
  | { readonly kind: 'wrong'; readonly expected: string; readonly came: string; readonly log: string }
  | { readonly kind: 'interrupted' };

const EXIT_CODES: Readonly<Record<Ending['kind'], number>> = { 'as expected': 0, wrong: 1, interrupted: 130 };

class Interruption extends Error {}

/** Resolves with the exit code: 0 when every call ended as it should, 1 otherwise, 130 when aborted. */
export async function runDemo(options: DemoOptions): Promise<number> {
  const table = new Table(options);
  const startedAtMs = performance.now();
  const interruption = interruptionBy(options.signal);
  table.line('Pawl runs an AI agent’s tool calls on worker processes, each call once. Here is what that means.');
  table.line('Starting a private Redis, three workers and a small HTTP service in a temporary folder …');
  const opening = Stage.open(table, options.environment);
  let ending: Ending;
  try {
    const stage = await Promise.race([opening, interruption.promise]);
    const summary = await Promise.race([play(stage, table), interruption.promise]);
    ending = { kind: 'as expected', summary };
  } catch (error) {
    ending = wrong(error, await logOf(opening));
  } finally {
    interruption.stop();
  }
  try {
    await (await opening.catch(() => undefined))?.close();
  } catch (error) {
    ending = wrong(error, '');
  }
  table.close();
  if (options.json) table.object(summaryLine(ending));
  else show(ending, table, (performance.now() - startedAtMs) / 1_000);
  return EXIT_CODES[ending.kind];
}

function interruptionBy(signal: AbortSignal | undefined): { readonly promise: Promise<never>; stop(): void } {
  const { promise, reject } = Promise.withResolvers<never>();
  promise.catch(() => {});
  const interrupt = () => reject(new Interruption());
  signal?.addEventListener('abort', interrupt);
  if (signal?.aborted === true) interrupt();
  return { promise, stop: () => signal?.removeEventListener('abort', interrupt) };
}

async function play(stage: Stage, table: Table): Promise<Summary> {
  table.line();
  table.head();
  for (const [index, chapter] of CHAPTERS.entries()) {
    table.chapter(index + 1, chapter.title);
    await chapter.run(stage);
  }
  return stage.summary();
}

async function logOf(opening: Promise<Stage>): Promise<string> {
  return (await opening.catch(() => undefined))?.fleet.log() ?? '';
}

function wrong(error: unknown, log: string): Ending {
  if (error instanceof Interruption) return { kind: 'interrupted' };
  if (error instanceof Mismatch) return { kind: 'wrong', expected: error.expected, came: error.came, log };
  const came = error instanceof Error ? error.message : String(error);
  return { kind: 'wrong', expected: 'every step to work', came, log };
}

function summaryLine(ending: Ending): object {
  const { kind, ...rest } = ending;
  return {
    type: 'summary',
    ended: kind,
    exitCode: EXIT_CODES[kind],
    ...(ending.kind === 'as expected' ? ending.summary : rest),
  };
}

function show(ending: Ending, table: Table, seconds: number): void {
  table.line();
  switch (ending.kind) {
    case 'interrupted':
      table.line('Interrupted; everything was removed again.');
      return;
    case 'wrong':
      table.line('The demo did not end as it should.');
      table.line(`  expected  ${ending.expected}`);
      table.line(`  came      ${ending.came}`);
      if (ending.log !== '') table.line(`The workers’ last errors:\n${ending.log}`);
      return;
    case 'as expected': {
      const { calls, effects, duplicatesPrevented, retries, workerKills } = ending.summary;
      table.line(
        `${calls} calls in ${seconds.toFixed(0)} s, and every one ended as it should: ` +
          `${effects.filesChanged} files changed, ${effects.invoicesSent} invoices sent and ${effects.documentsIndexed} documents indexed, each once.`,
      );
      table.line(`${duplicatesPrevented} duplicates prevented, ${retries} retries, ${workerKills} workers killed.`);
      table.line('Redis, workers, service and folder are gone again.');
      table.line();
      table.line('Try next, in two terminals:');
      table.line(
        '  npx pawl up                                            keeps the whole stack running, with a page to watch',
      );
      table.line(`  npx pawl call shell --params '{"command":["date"]}'    makes a call of your own`);
    }
  }
}
