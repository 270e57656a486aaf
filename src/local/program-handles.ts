/**
 * The memory store and the channels of a program, whose answers may be anything. What is no answer is refused with `CONFIGURATION` and
 * the name of the method: a tool would pass it on to a model.
 */
import { z } from 'zod';
import { PawlError, reasonOf } from '../shared/errors/failure.ts';
import { WITH_RECEIVED, zodIssues } from '../shared/schema/zod-issues.ts';
import type { Channel, Channels, MemoryStore, StoredMemory } from '../shared/tools/capabilities.ts';
import { backgroundSchedule } from '../shared/util/time.ts';
import { withinMs } from '../shared/util/wait.ts';

/** The channels of a program have this long to open one. */
const OPEN_MS = 5_000;

const text = z.string();
const method = z.custom((value) => typeof value === 'function', 'must be a function');
const record = z.looseObject({ id: text, text });
const openedMemory = z.looseObject({
  search: method,
  store: method,
  get: method.optional(),
  forget: method.optional(),
});
const openedChannel = z.looseObject({ kind: text, send: method, ask: method.optional() });
const stored = z.looseObject({ id: text });
const hits = z.array(record.extend({ score: z.number() }));
const answer = z.discriminatedUnion('state', [
  z.looseObject({ state: z.literal('answered'), value: text }),
  z.looseObject({ state: z.literal('expired') }),
  z.looseObject({ state: z.literal('dismissed') }),
]);

export function checkedMemory(store: MemoryStore): MemoryStore {
  requireMethods('memory', store, ['open', 'close']);
  return {
    open: (owner) => {
      const memory = checked<StoredMemory>('memory.open', openedMemory, store.open(owner));
      return {
        search: async (...given) => checked('memory.search', hits, await memory.search(...given)),
        store: async (...given) => checked('memory.store', stored, await memory.store(...given)),
        ...(memory.get !== undefined && {
          get: async (id) => checked('memory.get', record.nullish(), await memory.get?.(id)) ?? undefined,
        }),
        ...(memory.forget !== undefined && {
          forget: async (id) => checked<boolean>('memory.forget', z.boolean(), await memory.forget?.(id)),
        }),
      };
    },
    close: () => store.close(),
  };
}

export function checkedChannels(channels: Channels): Channels {
  requireMethods('channels', channels, ['open']);
  return {
    open: async (owner, signal) => {
      const open = async () => ({ channel: await channels.open(owner, signal) });
      const opened = await withinMs(open(), OPEN_MS, backgroundSchedule);
      if (opened === undefined) throw fault('channels.open', `did not answer within ${OPEN_MS} ms`);
      const channel = checked<Channel | null | undefined>('channels.open', openedChannel.nullish(), opened.channel);
      if (channel === undefined || channel === null) return undefined;
      return {
        kind: channel.kind,
        send: (message) => channel.send(message),
        ...(channel.ask !== undefined && {
          ask: async (asked) => checked('channel.ask', answer, await channel.ask?.(asked)),
        }),
      };
    },
  };
}

/** Without the check, each call that uses the object would fail as if its tool had thrown. */
function requireMethods(name: string, object: object, methods: readonly string[]): void {
  const missing = methods.find((each) => typeof Reflect.get(Object(object), each) !== 'function');
  if (missing !== undefined) throw fault(name, `has no method ${missing}`);
}

/** The value itself, so that what the schema does not name is kept. */
function checked<Value>(name: string, schema: z.ZodType, value: unknown): Value {
  let found: readonly { readonly path: string; readonly message: string }[];
  try {
    const { error } = schema.safeParse(value, WITH_RECEIVED);
    found = error === undefined ? [] : zodIssues(error);
  } catch (error) {
    // The value may have a getter that throws.
    throw fault(name, `cannot be read: ${reasonOf(error)}`);
  }
  const [issue] = found;
  if (issue === undefined) return value as Value;
  throw fault(
    name,
    `answered what is no answer of its own: ${issue.path === '' ? '' : `${issue.path} `}${issue.message}`,
  );
}

function fault(name: string, what: string): PawlError {
  return new PawlError('CONFIGURATION', `\`${name}\` of this program ${what}.`);
}
