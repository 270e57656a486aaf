/** Functions that a program hands over may return and throw anything. A call then ends with a code, and never waits for ever. */
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import {
  defineFreeformTool,
  defineHook,
  defineTool,
  PawlError,
  type ToolContext,
  type ToolSpec,
  toolsFor,
} from '../../src/index.ts';
import { checkedStore } from '../../src/shared/calls/dedupe-store.ts';
import { silentLogger } from '../../src/shared/telemetry/log.ts';
import {
  createLocalRunner,
  fakeClock,
  InMemoryDedupeStore,
  type LocalRunnerOptions,
  runTool,
} from '../../src/testing.ts';

const NAMES = ['output', 'deny', 'params', 'summary', 'ready', 'content', 'decision', 'result', 'state', 'metadata'];

function throwing(value: unknown): never {
  throw value;
}

/** An object of which every member throws. */
function unreadable(): object {
  const getter = { enumerable: true, get: () => throwing(new Error('no reading')) };
  return Object.defineProperties({}, Object.fromEntries(NAMES.map((name) => [name, getter])));
}

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

const ODD: Readonly<Record<string, () => unknown>> = {
  'throws nothing': () => throwing(undefined),
  'throws a symbol': () => throwing(Symbol('x')),
  'throws what is no text': () => throwing(Object.create(null)),
  'throws a revoked proxy': () => throwing(revoked()),
  'throws an error that throws': () =>
    throwing(Object.defineProperty(new Error('x'), 'message', { get: () => throwing(new Error('no message')) })),
  'rejects with what is no text': () => {
    const promise = Promise.reject(Object.create(null));
    // Where no promise is expected, nothing waits for this one.
    promise.catch(() => {});
    return promise;
  },
  'returns what cannot be read': unreadable,
  'returns a member that cannot be read': () => Object.fromEntries(NAMES.map((name) => [name, unreadable()])),
};

interface Case {
  readonly tool?: Partial<ToolSpec<string, z.ZodType, unknown>>;
  readonly options?: Partial<LocalRunnerOptions>;
}

const answer = { output: 1 };
const approve = () => ({ decision: 'approve' }) as const;
const hook = (kind: string, odd: () => unknown, more: Case = {}): Case => ({
  ...more,
  options: { approve, hooks: [defineHook({ name: 'odd', [kind]: odd })] },
});
const busy = {
  run: () => throwing(Object.assign(new Error('busy'), { status: 503 })),
  retry: { maxAttempts: 2, baseMs: 1 },
};
const memory = (open: () => unknown) => ({ open, close: async () => {} }) as never;

/** Each function, and what a call may end with: the codes of its errors, or a success. */
const FUNCTIONS: Readonly<Record<string, [make: (odd: () => never) => Case, ...ends: string[]]>> = {
  run: [(run) => ({ tool: { run } }), 'TOOL_FAILED', 'RESULT_INVALID'],
  ready: [(ready) => ({ tool: { ready } }), 'TOOL_FAILED', 'RESULT_INVALID'],
  isMutating: [(isMutating) => ({ tool: { isMutating, resource: () => 'x' } }), 'TOOL_FAILED', 'RESULT_INVALID'],
  resource: [(resource) => ({ tool: { resource } }), 'TOOL_FAILED', 'RESOURCE_INVALID'],
  preview: [(preview) => ({ tool: { tier: 'elevated', preview }, options: { approve } }), 'success'],
  transform: [(odd) => ({ tool: { input: z.object({}).transform(odd) } }), 'INVALID_PARAMS', 'TOOL_FAILED', 'success'],
  refine: [(odd) => ({ tool: { input: z.object({}).refine(odd) } }), 'INVALID_PARAMS', 'TOOL_FAILED', 'success'],
  approve: [(odd) => ({ tool: { tier: 'elevated' }, options: { approve: odd } }), 'PERMISSION_DENIED'],
  beforeCall: [(odd) => hook('beforeCall', odd), 'HOOK_FAILED'],
  beforeAttempt: [(odd) => hook('beforeAttempt', odd), 'HOOK_FAILED'],
  afterAttempt: [(odd) => hook('afterAttempt', odd), 'success', 'TOOL_FAILED'],
  onRetry: [(odd) => hook('onRetry', odd, { tool: busy }), 'HTTP_503'],
  afterCall: [(odd) => hook('afterCall', odd), 'success'],
  onEvent: [(onEvent) => ({ options: { onEvent } }), 'success'],
  memory: [(open) => ({ options: { memory: memory(open) } }), 'CONFIGURATION', 'TOOL_FAILED'],
  channels: [(open) => ({ options: { channels: { open } } }), 'CONFIGURATION', 'TOOL_FAILED'],
  sleep: [(sleep) => ({ tool: busy, options: { sleep } }), 'CONFIGURATION', 'HTTP_503'],
  random: [(random) => ({ tool: busy, options: { random } }), 'CONFIGURATION'],
};

test.each(Object.entries(FUNCTIONS))('whatever %s returns or throws, its call ends', async (name, [make, ...ends]) => {
  for (const [what, odd] of Object.entries(ODD)) {
    // zod waits for no promise, and leaves its rejection to the process.
    if (what.startsWith('rejects') && /transform|refine/.test(name)) continue;
    const { tool, options } = make(odd as () => never);
    const spec = {
      name: 'note',
      version: '1.0.0',
      description: 'Notes.',
      tier: 'workspace',
      effects: 'idempotent',
    } as const;
    const definition = { ...spec, input: z.object({}), run: () => answer, ...tool };
    const runner = createLocalRunner({ tools: [defineTool(definition)], sleep: async () => {}, ...options });
    onTestFinished(() => runner.close(0));
    const result = await runner.run('note', {});
    expect(ends, what).toContain(result.error?.code ?? result.status);
    expect(result.error?.message ?? '', what).not.toMatch(/Cannot (?:read|convert)|is not (?:a function|iterable)/);
  }
});

const HANDLE_ANSWERS: Readonly<Record<string, (ctx: ToolContext) => Promise<unknown>>> = {
  'memory.search': (ctx) => ctx.memory.search('x'),
  'memory.store': (ctx) => ctx.memory.store('x'),
  'memory.get': (ctx) => ctx.memory.get('x'),
  'memory.forget': (ctx) => ctx.memory.forget('x'),
  'channel.ask': async (ctx) => ctx.channel.ask?.({ text: 'x' }),
};
const ODD_ANSWERS = [7, 'x', {}, [null], [{ id: 'a', text: 'b', score: Number.NaN }], Symbol('x'), unreadable()];

test.each(Object.entries(HANDLE_ANSWERS))('an odd answer of `%s` of a program is named', async (method, use) => {
  for (const odd of ODD_ANSWERS) {
    const answer = async () => odd as never;
    const tools = [
      defineTool({
        name: 'note',
        version: '1.0.0',
        description: 'Notes.',
        tier: 'workspace',
        input: z.object({}),
        run: async (_params, ctx) => ({ output: await use(ctx) }),
      }),
    ];
    const memory = {
      open: () => ({ search: answer, store: answer, get: answer, forget: answer }),
      close: async () => {},
    };
    const channels = { open: async () => ({ kind: 'test', send: async () => {}, ask: answer }) };
    const runner = createLocalRunner({ tools, memory, channels });
    onTestFinished(() => runner.close(0));
    const { error } = await runner.run('note', {});
    expect(error, String(odd)).toMatchObject({
      code: 'CONFIGURATION',
      message: expect.stringContaining(`\`${method}\``),
    });
  }
});

test('a logger that throws stops no call', async () => {
  for (const [what, odd] of Object.entries(ODD)) {
    const log = { debug: odd, info: odd, warn: odd, error: odd } as never;
    const spec = { name: 'note', version: '1.0.0', description: 'Notes.', tier: 'read-only' } as const;
    const run = (_params: unknown, ctx: { log: Record<'info', (fields: object, message: string) => void> }) => {
      ctx.log.info({}, 'a line');
      return answer;
    };
    const runner = createLocalRunner({ tools: [defineTool({ ...spec, input: z.object({}), run: run as never })], log });
    onTestFinished(() => runner.close(0));
    expect(await runner.run('note', {}), what).toMatchObject({ status: 'success' });
  }
});

const STORE_ANSWERS = {
  ...ODD,
  undefined: () => undefined,
  null: () => null,
  text: () => 'x',
  symbol: () => Symbol('x'),
};

test.each(['setIfNotExists', 'get', 'compareAndSet', 'now'] as const)(
  'an odd answer of `%s` of a dedupe store is named',
  async (method) => {
    for (const [what, odd] of Object.entries(STORE_ANSWERS)) {
      if (method === 'get' && what === 'undefined') continue; // There is no record.
      // A store that fails may be back soon: a call that has begun waits for it.
      if (method === 'compareAndSet' && /^(?:throws|rejects)/.test(what)) continue;
      const store = Object.assign(new InMemoryDedupeStore(), { [method]: odd });
      const spec = { name: 'note', version: '1.0.0', description: 'Notes.', tier: 'read-only' } as const;
      const tools = [defineTool({ ...spec, input: z.object({}), run: () => answer })];
      const runner = createLocalRunner({ tools, store: store as never });
      onTestFinished(() => runner.close(0));
      const ended = runner.run('note', {}).then(({ error }) => error);
      const error: unknown = await ended.catch((reason: unknown) => reason);
      expect(error, what).toMatchObject({
        code: /^(?:throws|rejects)/.test(what) ? 'BACKEND_UNAVAILABLE' : 'CONFIGURATION',
        message: expect.stringContaining(`\`${method}\` of the dedupe store`),
      });
    }
  },
);

test('a store that does not answer is named', async () => {
  const store = Object.assign(new InMemoryDedupeStore(), { compareAndSet: () => new Promise<never>(() => {}) });
  const checked = checkedStore(store, 20);
  await expect(checked.compareAndSet('key', 1, {} as never)).rejects.toMatchObject({
    code: 'BACKEND_UNAVAILABLE',
    message: '`compareAndSet` of the dedupe store did not answer within 20 ms.',
  });
});

test.for([
  ['approve', {}, () => new Promise<never>(() => {})],
  ['preview', { preview: () => new Promise<never>(() => {}) }, () => ({ decision: 'approve' }) as const],
] as const)(
  'a call that waits for `%s` until its time limit did nothing, and says so',
  async ([name, more, approve]) => {
    const spec = { name: 'pay', version: '1.0.0', description: 'Pays.', tier: 'elevated', effects: 'once' } as const;
    const tools = [defineTool({ ...spec, input: z.object({}), run: () => answer, ...more })];
    const clock = fakeClock();
    const runner = createLocalRunner({ tools, clock, approve });
    onTestFinished(() => runner.close(0));
    const { error } = await clock.until(runner.run('pay', {}, { timeoutMs: 50 }));
    expect(error).toMatchObject({ code: 'DEADLINE_EXCEEDED', message: expect.stringContaining('nothing ran') });
    expect(error?.message).toContain(`\`${name}\``);
    expect(error).not.toHaveProperty('mayHaveHappened');
  },
);

test.for([
  ['channels', { send: async () => {}, ask: async () => ({ state: 'dismissed' }) }, 'open'],
  ['channels', 'console', 'open'],
  ['memory', { open: () => undefined }, 'close'],
  ['memory', { close: async () => {} }, 'open'],
] as const)('a runner names the method that its %s lack', ([option, value, method]) => {
  expect(() => createLocalRunner({ tools: [], [option]: value })).toThrow(
    `\`${option}\` of this program has no method ${method}.`,
  );
});

test('without a fleet, a preview that is none is logged as in a fleet', async () => {
  const warned: string[] = [];
  const log = { ...silentLogger, warn: (_fields: object, message: string) => void warned.push(message) };
  const spec = { name: 'pay', version: '1.0.0', description: 'Pays.', tier: 'elevated', effects: 'once' } as const;
  const preview = () => 'Pays 3 euros' as never;
  const tool = defineTool({ ...spec, input: z.object({}), preview, run: () => answer });
  expect(await runTool(tool, {}, { approve, log })).toMatchObject({ status: 'success' });
  expect(warned).toEqual(['preview of pay must return { summary, details? } with texts; it returned a text.']);
});

test('an asynchronous refinement or transform is named, wherever it stands in the schema', async () => {
  const later = async () => true;
  const text = z.string();
  for (const input of [
    z.object({ a: text }).transform(later),
    z.object({ a: text.transform(later) }),
    z.object({ a: text.refine(later) }),
    z.object({ a: z.union([text.transform(later), z.number()]) }),
  ]) {
    const spec = { name: 'note', version: '1.0.0', description: 'Notes.', tier: 'read-only' } as const;
    const runner = createLocalRunner({ tools: [defineTool({ ...spec, input, run: () => answer })] });
    onTestFinished(() => runner.close(0));
    const { error } = await runner.run('note', { a: 'x' });
    expect(error).toMatchObject({ code: 'TOOL_FAILED', message: expect.stringContaining('asynchronous') });
  }
});

test('a program without types gets a Pawl error for odd arguments, whatever they are', () => {
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  const odd = [
    null,
    7.5,
    Number.NaN,
    10n,
    Symbol('x'),
    'x y',
    true,
    [null],
    ['1.0.0'],
    { odd: 1 },
    circular,
    new Map(),
  ];
  const spec = {
    name: 'note',
    version: '1.0.0',
    description: 'Notes.',
    tier: 'read-only',
    input: z.object({}),
  } as const;
  const define = (change: object) => defineTool({ ...spec, run: () => answer, ...change });
  const uses: Readonly<Record<string, (value: never) => unknown>> = {
    ...Object.fromEntries(
      [
        'name',
        'version',
        'description',
        'tier',
        'namespace',
        'effects',
        'annotations',
        'needs',
        'timeoutMs',
        'budget',
        'voters',
      ].map((name) => [name, (value: unknown) => define({ [name]: value })]),
    ),
    defineTool: (value) => defineTool(value),
    defineFreeformTool: (value) => defineFreeformTool(value),
    defineHook: (value) => defineHook(value),
    'hook.timeoutMs': (timeoutMs) => defineHook({ name: 'h', timeoutMs, afterCall: () => {} }),
    provider: (value) => toolsFor(value, []),
    toolsFor: (value) => toolsFor('openai', value),
    createLocalRunner: (tools) => createLocalRunner({ tools }),
    settings: (httpPort) => createLocalRunner({ tools: [], settings: { httpPort } }),
  };
  for (const [name, use] of Object.entries(uses))
    for (const value of odd) {
      let caught: unknown;
      try {
        use(value as never);
      } catch (error) {
        caught = error;
      }
      if (caught !== undefined) expect(caught, `${name}: ${typeof value}`).toBeInstanceOf(PawlError);
    }
  expect(() => define({ namespace: ['tools'] })).toThrow('namespace must be a letter');
  expect(() => define({ version: ['1.0.0'] })).toThrow('version must be a semantic version');
});
