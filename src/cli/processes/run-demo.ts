/** `pawl demo`: runs the example in `examples/demo`. */
import type { CliContext } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';

/** The package has the demo as JavaScript beside the built sources. */
const DEMO = new URL(
  import.meta.url.endsWith('.ts') ? '../../../examples/demo/demo.ts' : '../../demo/demo.js',
  import.meta.url,
);

interface Demo {
  runDemo(options: {
    readonly json: boolean;
    readonly out: NodeJS.WriteStream;
    readonly environment: NodeJS.ProcessEnv;
    readonly signal: AbortSignal;
  }): Promise<number>;
}

/** The first interruption ends the demo early, the second one at once. */
export async function runDemo(context: CliContext): Promise<number> {
  const { json, out, environment } = context;
  const stop = new AbortController();
  const stopListening = context.onInterrupt((times) =>
    times === 1 ? stop.abort() : context.endNow(EXIT_CODES.failed.code),
  );
  const demo: Demo = await import(DEMO.href);
  return demo.runDemo({ json, out, environment, signal: stop.signal }).finally(stopListening);
}
