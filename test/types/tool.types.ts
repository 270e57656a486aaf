/**
 * What must compile and what must not: `tsc` is the test. An `@ts-expect-error` that finds no error is one itself.
 * Nothing here runs.
 */
import { z } from 'zod';
import * as mini from 'zod/mini';
import * as z3 from 'zod/v3';
import {
  type AnyTool,
  defineTool,
  functionTool,
  type InputOf,
  type OutputOf,
  type Pawl,
  type Session,
  type ToolContext,
  type ToolResultEnvelope,
} from '../../src/index.ts';

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function holds<_Condition extends true>(): void {}

const weather = defineTool({
  name: 'get_weather',
  version: '1.0.0',
  description: 'Current weather of a city.',
  tier: 'read-only',
  input: z.object({ city: z.string(), units: z.enum(['celsius', 'fahrenheit']).default('celsius') }),
  run: ({ city, units }, ctx) => {
    // `run` gets the schema's output: defaults are there.
    holds<Equal<typeof units, 'celsius' | 'fahrenheit'>>();
    holds<Equal<typeof ctx, ToolContext>>();
    return { output: { tempC: 21, city } };
  },
});

holds<Equal<(typeof weather)['name'], 'get_weather'>>();
holds<Equal<InputOf<typeof weather>, { city: string; units?: 'celsius' | 'fahrenheit' | undefined }>>();
holds<Equal<OutputOf<typeof weather>, { tempC: number; city: string }>>();

/** An interface has no index signature, unlike a type literal. */
interface Declared {
  readonly command: readonly string[];
}
const declared: Declared = { command: ['ls'] };

export async function calls(session: Session): Promise<void> {
  // By the tool: parameters and result are its own; what has a default may be left out.
  const typed = await session.call(weather, { city: 'Paris' });
  holds<Equal<typeof typed, ToolResultEnvelope<{ tempC: number; city: string }>>>();
  await session.call(weather, { city: 'Paris', units: 'fahrenheit' }, { idempotencyKey: 'trip-1', timeoutMs: 100 });
  // @ts-expect-error a required parameter is missing
  await session.call(weather, {});
  // @ts-expect-error a parameter has the wrong type
  await session.call(weather, { city: 7 });
  // @ts-expect-error a parameter has a value that is not allowed
  await session.call(weather, { city: 'Paris', units: 'kelvin' });
  // @ts-expect-error there is no such parameter
  await session.call(weather, { city: 'Paris', unit: 'celsius' });
  // @ts-expect-error there is no such option
  await session.call(weather, { city: 'Paris' }, { idempotenceKey: 'x' });
  // @ts-expect-error there is no such mode
  await session.call(weather, { city: 'Paris' }, { dedupeMode: 'always' });
  // @ts-expect-error only what defineTool made is a tool
  await session.call({ name: 'get_weather', run: () => 1 }, { city: 'Paris' });

  // The fault is shown at the parameter that has it, not at the tool.
  await session.call(weather, {
    // @ts-expect-error a parameter has the wrong type
    city: 7,
  });
  await session.call(weather, {
    city: 'Paris',
    // @ts-expect-error a parameter has a value that is not allowed
    units: 'kelvin',
  });
  await session.submit(weather, {
    city: 'Paris',
    // @ts-expect-error there is no such parameter
    unit: 'celsius',
  });
  await session.call(
    weather,
    { city: 'Paris' },
    {
      // @ts-expect-error there is no such option
      idempotenceKey: 'x',
    },
  );

  // Handed in: the same, and what a model gives may be wrong.
  const submission = await session.submit(weather, { city: 'Paris' });
  holds<Equal<Awaited<typeof submission.result>, ToolResultEnvelope<{ tempC: number; city: string }>>>();
  // @ts-expect-error a parameter has the wrong type
  await session.submit(weather, { city: 7 });
  const asked = await session.callWithReask(weather, { town: 'Paris' }, { ask: ({ params }) => params });
  holds<Equal<typeof asked, ToolResultEnvelope<{ tempC: number; city: string }>>>();

  // By its name: any object, and an unknown result.
  const named = await session.call('shell', { command: ['ls'] });
  holds<Equal<typeof named, ToolResultEnvelope>>();
  // @ts-expect-error parameters are an object
  await session.call('shell', 'ls');
  await session.call('shell', declared);
  await session.batch([{ tool: 'shell', params: declared }]);

  // The status narrows: a success has an output and no error, everything else the other way round.
  if (typed.status === 'success') {
    holds<Equal<typeof typed.output.content, { tempC: number; city: string }>>();
    holds<Equal<typeof typed.error, undefined>>();
    // @ts-expect-error there is no such member of the output
    typed.output.content.tempF;
  } else {
    holds<Equal<typeof typed.error.code, string>>();
    holds<Equal<typeof typed.output, undefined>>();
    holds<Equal<typeof typed.status, 'error' | 'retriable_error' | 'retry_exhausted' | 'circuit_open' | 'timeout'>>();
  }
  // @ts-expect-error without looking at the status there may be no output
  typed.output.content;
  // @ts-expect-error there is no such status
  if (typed.status === 'ok') return;
  // @ts-expect-error a result is not changed
  typed.status = 'error';
}

const base = { version: '1.0.0', description: 'x', tier: 'workspace', input: z.object({ text: z.string() }) } as const;

// @ts-expect-error a tool has a name
defineTool({ ...base, run: () => ({ output: 1 }) });
// @ts-expect-error there is no such tier
defineTool({ ...base, name: 'a', tier: 'root', run: () => ({ output: 1 }) });
// @ts-expect-error there are no such effects
defineTool({ ...base, name: 'a', effects: 'some', run: () => ({ output: 1 }) });
// @ts-expect-error there is no such capability
defineTool({ ...base, name: 'a', needs: ['root'], run: () => ({ output: 1 }) });
// @ts-expect-error run returns { output }
defineTool({ ...base, name: 'a', run: () => 'text' });
// @ts-expect-error run gets what the schema describes
defineTool({ ...base, name: 'a', run: ({ txt }) => ({ output: txt }) });
// @ts-expect-error the output is what its schema describes
defineTool({ ...base, name: 'a', output: z.object({ a: z.number() }), run: () => ({ output: { a: 'x' } }) });
// @ts-expect-error display is text
defineTool({ ...base, name: 'a', run: () => ({ output: 1, display: 7 }) });
// @ts-expect-error a probe answers done, not-done or unknown
defineTool({ ...base, name: 'a', effects: 'probe', probe: () => ({ state: 'maybe' }), run: () => ({ output: 1 }) });

// A tool may be asynchronous, and its output may come from a schema.
const later = defineTool({
  ...base,
  name: 'later',
  output: z.object({ length: z.number() }),
  run: async ({ text }) => ({ output: { length: text.length }, display: text }),
});
holds<Equal<OutputOf<typeof later>, { length: number }>>();
// @ts-expect-error what is no tool has no input
holds<Equal<InputOf<string>, string>>();

/** What calls any tool passes its parameters on, and narrows its results. */
export async function traced<T extends AnyTool>(session: Session, tool: T, params: InputOf<T>): Promise<unknown> {
  const result = await session.call(tool, params);
  return result.status === 'success' ? result.output.content : result.error.code;
}

/** Every result narrows by its status, wherever it was read. */
export async function read(pawl: Pawl, session: Session): Promise<void> {
  const result = await pawl.result('w0.1');
  if (result?.status === 'success') result.output.content;
  const outcome = (await pawl.read('w0.1'))?.outcome;
  if (outcome?.status === 'success') holds<Equal<typeof outcome.output.content, unknown>>();
  // @ts-expect-error without looking at the status there may be no output
  outcome?.output.content;
  const either = await session.call(session.key === 'a' ? weather : 'shell', { city: 'Paris' });
  if (either.status === 'success') either.output.content;
  const results = await Promise.all([session.call(weather, { city: 'Paris' }), session.call('shell', {})]);
  results.filter((each) => each.status === 'success').map(({ output }) => output.content);
}

// A schema of another version of zod 4 has types of its own, as one of zod/mini does.
const small = defineTool({
  name: 'small',
  version: '1.0.0',
  description: 'Takes a schema of zod/mini.',
  tier: 'read-only',
  input: mini.object({ city: mini.string(), days: mini._default(mini.number(), 1) }),
  output: mini.object({ nights: mini.number() }),
  run: ({ days }) => ({ output: { nights: days } }),
});
holds<Equal<InputOf<typeof small>, { city: string; days?: number | undefined }>>();
holds<Equal<OutputOf<typeof small>, { nights: number }>>();

functionTool('small', 'Takes a schema of zod/mini.', mini.object({ city: mini.string() }), ({ city }) => city.length);

defineTool({
  name: 'old',
  version: '1.0.0',
  description: 'Takes a schema of zod 3.',
  tier: 'read-only',
  // @ts-expect-error only schemas of zod 4 are taken
  input: z3.object({ city: z3.string() }),
  run: () => ({ output: 1 }),
});
