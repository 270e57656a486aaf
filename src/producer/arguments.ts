/**
 * The arguments of the public methods, for programs without types: each method refuses other values before anything has happened.
 */
import { z } from 'zod';
import { identifierSchema } from '../shared/calls/envelope.ts';
import { type Issue, invalidInput, reasonOf } from '../shared/errors/failure.ts';
import { WITH_RECEIVED, zodIssues } from '../shared/schema/zod-issues.ts';
import { quoteValue } from '../shared/util/text/quote-value.ts';
import type { ProducerParts } from './compose.ts';

type Shapes<Service> = {
  readonly [Name in keyof Service as Service[Name] extends (...values: never) => unknown
    ? Name
    : never]?: z.ZodRawShape;
};

const text = z.string();
const by = text.optional();
const texts = z.array(text);
const must = <Value>(what: string, isOne: (value: unknown) => boolean) =>
  z.custom<Value>(isOne, { error: ({ input }) => `must be ${what}; got ${quoteValue(input)}` });
const count = must<number>('a whole number from 0 on', (value) => Number.isSafeInteger(value) && Number(value) >= 0);
const ms = must<number>('a number', (value) => typeof value === 'number' && !Number.isNaN(value));
const listener = must<() => void>('a function', (value) => typeof value === 'function');
const object = z.looseObject({});
const results = must<object>('a map', (value) => value instanceof Map).optional();
const access = z.looseObject({
  by,
  tenantId: by,
  submittedBy: by,
  requestId: by,
  limit: count.optional(),
  waitMs: ms.optional(),
  seesTenant: listener.optional(),
  isSeen: listener.optional(),
});
const options = access.optional();
const call = { callId: text };
const byId = { id: text, options };
const byTool = { tool: text, options };

/** The arguments of each method by name, in their order. */
const SERVICES = {
  calls: {
    read: call,
    readAsItRan: call,
    list: { options },
    output: call,
    outputStream: call,
    result: { ...call, options },
    withHooks: { result: object },
    cancel: { ...call, by },
    requestCancel: { ...call, by },
    resolveMany: { resolution: object },
    resolve: { ...call, resolution: object, by, reason: by },
    flush: { selection: options },
  },
  deadLetters: {
    list: { query: options },
    redrive: { selection: object },
    progress: { redriveId: text, options },
    redrives: { options },
    stop: { redriveId: text, options },
    discard: { selection: object },
  },
  batches: {
    create: { batch: object, results },
    read: { batchId: text, access: options },
    cancel: { batchId: text, by },
    results: { batch: z.looseObject({ batchId: text }), received: results },
  },
  plans: {
    check: { submitted: object },
    create: { submitted: object },
    read: { planId: text, access: options },
    show: { planId: text, access: options },
    list: { filter: options },
    ended: { planId: text },
    cancel: { planId: text, by },
  },
  circuits: {
    history: { limit: count.optional() },
    set: { action: z.enum(['force_open', 'reset']), select: object, reason: by, by },
  },
  reliability: { set: { enabled: z.boolean(), change: options } },
  shards: { set: { tier: text, shards: count, by } },
  callbacks: { list: { filter: options }, replay: byId, secrets: { tenantId: identifierSchema.optional() } },
  workers: { drain: { workerId: text, by } },
  sessions: {
    open: { request: object.optional() },
    draft: { request: object },
    find: { sessionKey: text },
    findOrOpen: { request: z.looseObject({ sessionKey: text }) },
    list: { limit: count.optional(), tenantId: by },
    setState: { sessionKey: text, state: text, by },
    close: { sessionKey: text, by },
  },
  approvals: {
    list: { options },
    listBrief: { options },
    show: { id: text },
    remembered: { sessionKey: text },
    forget: { sessionKey: text, approvalId: text, by: text },
    decide: { id: text, options: object },
    cancelled: call,
  },
  questions: {
    list: { limit: count.optional(), isSeen: listener.optional() },
    show: { id: text },
    reply: {
      id: text,
      reply: z.union([z.looseObject({ answer: text }), z.looseObject({ dismiss: z.literal(true) })]),
      by: text,
    },
  },
  agents: {
    reply: { parent: text, event: z.looseObject({ agentId: text }), reply: z.looseObject({ state: text, output: by }) },
  },
  registry: {
    read: { tool: text },
    history: { tool: text },
    put: { tool: text, spec: object, options },
    patch: { tool: text, switches: object, options },
    remove: byTool,
    rollback: { tool: text, to: count, options },
  },
  skills: {
    triggeredBy: { task: text },
    show: { name: text },
    named: { names: texts },
    put: { name: text, skill: object, by },
    remove: { name: text, by },
  },
  schedules: {
    put: { schedule: object, options },
    check: { schedule: object, draft: listener, access: access },
    list: { access: options },
    get: byId,
    pause: byId,
    resume: byId,
    run: byId,
    remove: byId,
  },
  toolClients: {
    join: { tools: texts, options },
    next: { clientId: text, poll: z.looseObject({ running: texts, waitMs: ms }) },
    heartbeat: { clientId: text, running: texts },
    progress: { clientId: text, callId: text, fence: count, progress: object },
    answer: { clientId: text, callId: text, posted: z.looseObject({ fence: count }) },
    leave: { clientId: text, by },
  },
} satisfies { readonly [Name in keyof ProducerParts]?: Shapes<ProducerParts[Name]> };

/** The services whose methods the gate wraps. */
type Services = Pick<ProducerParts, keyof typeof SERVICES>;

const PAWL = {
  follow: { ...call, subscriber: z.looseObject({ onEvents: listener, onEnd: listener }) },
  publishedFor: { session: object },
  published: { namespace: text, name: text },
  serveTools: { tools: z.array(object), options },
  onCatalogueChange: { listener },
  audit: { query: options },
  complete: { token: text, completion: object },
};
type Owner = keyof Services | 'pawl';
const ARGUMENTS: Readonly<Record<Owner, Readonly<Record<string, z.ZodRawShape>>>> = { ...SERVICES, pawl: PAWL };
const schemas = new Map<string, z.ZodObject>();

/** Throws `CONTRACT_INVALID` for arguments of another type. */
function checkMethod(owner: Owner, method: string, values: readonly unknown[]): void {
  const shape = ARGUMENTS[owner][method] ?? {};
  const name = owner === 'pawl' ? `pawl.${method}` : `pawl.${owner}.${method}`;
  const schema = schemas.get(name) ?? z.object(shape);
  schemas.set(name, schema);
  const named = Object.fromEntries(Object.keys(shape).map((each, index) => [each, values[index]]));
  const issues = issuesOf(schema, named);
  if (issues.length > 0) throw invalidInput(`The arguments of ${name} are not usable`, issues, 'the arguments');
}

/** A getter or a proxy of the caller may throw while its members are read. */
function issuesOf(schema: z.ZodObject, named: object): readonly Issue[] {
  try {
    const { error } = schema.safeParse(named, WITH_RECEIVED);
    return error === undefined ? [] : zodIssues(error);
  } catch (error) {
    return [{ path: '', message: `cannot be read: ${reasonOf(error)}` }];
  }
}

/** Throws `CONTRACT_INVALID` for arguments of another type: `checkArguments('published', namespace, name)`. */
export function checkArguments(method: keyof typeof PAWL, ...values: readonly unknown[]): void {
  checkMethod('pawl', method, values);
}

/** Lets the methods of the services, which answer with promises, reject for arguments of another type. */
export function guardServices(services: Services): void {
  for (const owner of Object.keys(SERVICES) as (keyof Services)[])
    for (const method of Object.keys(SERVICES[owner])) {
      const service = services[owner];
      const run = Reflect.get(service, method) as () => unknown;
      const value = async (...values: []) => {
        checkMethod(owner, method, values);
        return Reflect.apply(run, service, values);
      };
      Object.defineProperty(service, method, { value, configurable: true, writable: true });
    }
}
