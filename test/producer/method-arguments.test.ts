/** Every method of what a program gets, called with arguments of any type: no error is without a code. */
import { expect, test } from 'vitest';
import { PawlError, ToolError } from '../../src/index.ts';
import { createLocalRunner, fakeClock, InMemoryDedupeStore, ToolReliabilityMiddleware } from '../../src/testing.ts';
import { startFleet } from '../helpers/fleet.ts';
import { echo } from '../helpers/tools.ts';

/** These end the object, and come last; without an argument they wait for nothing. */
const ENDS = ['close', 'interrupt', 'drain', 'stopSchedules', 'takeOverGroups'];
/** What the parts of Pawl call on each other: no program needs these. */
const INTERNAL = [
  ...[
    'emit',
    'inform',
    'emitInvalidParams',
    'listenerFailed',
    'refuseNow',
    'submit',
    'publishedFor',
    'setSessionState',
  ],
  ...[
    'closeSession',
    'workspaceRoot',
    'requestFor',
    'requestForPlan',
    'requestAgain',
    'requested',
    'similarTo',
    'isGranted',
  ],
  ...['routeOf', 'listen', 'unlisten'],
];
const WRONG = [undefined, null, 7.5, 'x', Symbol('x'), [], {}, Object.create(null), 10n, () => {}];

function methodsOf(object: object): string[] {
  const names = new Set<string>();
  for (let each = object; each !== Object.prototype && each !== null; each = Object.getPrototypeOf(each))
    for (const name of Object.getOwnPropertyNames(each))
      if (
        name !== 'constructor' &&
        !INTERNAL.includes(name) &&
        typeof (object as Record<string, unknown>)[name] === 'function'
      )
        names.add(name);
  return [...names].sort((one, other) => Number(ENDS.includes(one)) - Number(ENDS.includes(other)));
}

async function faultOf(method: (...args: unknown[]) => unknown, args: readonly unknown[]): Promise<unknown> {
  try {
    const answer = await method(...args);
    if (typeof (answer as AsyncDisposable | undefined)?.[Symbol.asyncDispose] === 'function')
      await (answer as AsyncDisposable)[Symbol.asyncDispose]();
    return undefined;
  } catch (error) {
    return error instanceof PawlError || error instanceof ToolError ? undefined : error;
  }
}

/** The faults of all methods, as `object.method(7.5): TypeError: …`. */
async function faultsOf(name: string, object: object): Promise<string[]> {
  const faults: string[] = [];
  for (const method of methodsOf(object))
    for (const wrong of WRONG)
      for (const args of [[wrong], ['x', wrong], [wrong, wrong, wrong]]) {
        const fault = await faultOf((...values) => Reflect.apply(Reflect.get(object, method), object, values), args);
        if (fault !== undefined)
          faults.push(
            `${name}.${method}(${args.map((each) => (typeof each === 'object' ? JSON.stringify(each) : String(each))).join(', ')}): ${String(fault)}`,
          );
      }
  return faults;
}

const OBJECTS = {
  // A tool that no worker has is not waited for.
  session: async () => (await startFleet({ tools: [echo], settings: { toolWaitMs: 1 } })).session,
  pawl: async () => (await startFleet({ tools: [echo] })).pawl,
  worker: async () => (await startFleet({ tools: [echo], workers: 0 })).startWorker(),
  runner: async () => createLocalRunner({ tools: [echo] }),
  'local session': async () => createLocalRunner({ tools: [echo] }).openSession(),
  'local circuits': async () => createLocalRunner({ tools: [echo] }).circuits,
  middleware: async () => new ToolReliabilityMiddleware(),
  'a store in memory': async () => new InMemoryDedupeStore(),
  'a clock': async () => fakeClock(),
};

test.each(Object.entries(OBJECTS))('%s', async (name, open) => {
  expect(await faultsOf(name, await open())).toEqual([]);
});

test('each service of pawl', async () => {
  const { pawl } = await startFleet({ tools: [echo] });
  const { settings: _, backend: __, metrics: ___, fleetMetrics: ____, ...services } = pawl;
  const faults: string[] = [];
  for (const [name, service] of Object.entries(services)) faults.push(...(await faultsOf(`pawl.${name}`, service)));
  expect(faults).toEqual([]);
});
