/** Thousands of hostile requests from one seed: whatever comes, the answer is one of the contract's, and tells nothing of us. */
import { Agent, request } from 'node:http';
import { expect, test } from 'vitest';
import { uuidv7 } from '../../../../src/shared/util/time.ts';
import { startRig, testTools } from '../rig.ts';

const QUICK = { requests: 400, tags: [] };
const WHOLE = { requests: 10_000, tags: ['slow'] };
const AT_ONCE = 32;
const SEED = 20_261_122;

/** Mulberry32. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const VALUES: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  1e308,
  0.1,
  '',
  ' ',
  'x'.repeat(2_000),
  '../../etc/passwd',
  '\u0000',
  '\ud800',
  '__proto__',
  'constructor',
  '*',
  '{a}:b c',
  "'; DROP",
  '{{7*7}}',
  [],
  [[[[[]]]]],
  {},
  { __proto__: null, toString: 1 },
  { $ref: '#' },
  'r0.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
];
const TEXTS = [
  '',
  '"',
  '"\\"',
  'a,b',
  'x'.repeat(1_500),
  '0.0.0',
  '9.9.9',
  '1e9',
  '%00',
  'bytes=0-',
  'ÿ',
  '\t',
  'null',
];
const HEADERS = ['idempotency-key', 'last-event-id', 'accept', 'range', 'if-match', 'traceparent', 'prefer', 'cookie'];
const PATHS = [
  '/v1/calls/%00',
  '/v1/calls/%E0%A4%A',
  '/v1/calls/..%2f..%2f',
  `/v1/calls/r0.${'x'.repeat(22)}/events`,
  '/v1/calls/x/events',
  '/v1/calls?limit=999999999999',
  '/v1/calls?session=%F0%9F%92%A9&session=2',
  '/v1/calls?__proto__[x]=1',
  '/v1/tools?session=',
  '/v1/sessions/constructor',
  '/v1/sessions/__proto__',
  '/debug/tool-reliability?x',
  '//v1//calls',
  '/queues/../v1/calls',
  '/mcp',
];

const valid = () => ({
  contractVersion: '1.1',
  requestId: uuidv7(),
  toolCallId: 't1',
  toolName: 'echo',
  toolNamespace: 'tools',
  target: { sessionKey: 'fuzz', actorId: 'anonymous', correlationId: 'c' },
  payload: { version: '1.0', params: { text: 'x' }, idempotencyKey: 'k', callHints: { timeoutMs: 10_000 } },
  transport: { dedupeMode: 'enforced', retryBudget: { maxAttempts: 1, maxElapsedMs: 10_000 } },
  control: { deadlineAtMs: 4_000_000_000_000, requestTags: ['a'] },
  trace: { traceparent: '00-0-0-00', baggage: { a: 'b' } },
});
const short = () => ({ tool: 'echo', params: { text: 'x' }, session: 'fuzz', idempotencyKey: 'k2', timeoutMs: 10_000 });

for (const { requests, tags } of [QUICK, WHOLE])
  test(`${requests} seeded requests: no 500, no crash, no path and no stack`, { timeout: 300_000, tags }, async () => {
    const rig = await startRig(testTools());
    const random = randomOf(SEED);
    const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)] as T;

    /** Replaces, removes or adds something somewhere in a value. */
    const mutate = (value: Record<string, unknown>): void => {
      let at = value;
      for (;;) {
        const key = random() < 0.1 ? pick(TEXTS) : pick(Object.keys(at));
        const below = key === undefined ? undefined : at[key];
        if (
          typeof below === 'object' &&
          below !== null &&
          !Array.isArray(below) &&
          random() < 0.6 &&
          Object.keys(below).length > 0
        ) {
          at = below as Record<string, unknown>;
          continue;
        }
        if (key === undefined) return;
        if (random() < 0.2) delete at[key];
        else at[key] = structuredClone(pick(VALUES));
        return;
      }
    };
    const bodyOf = (): string => {
      const body: Record<string, unknown> = random() < 0.5 ? valid() : short();
      for (let times = Math.floor(random() * 3); times >= 0; times -= 1) mutate(body);
      const text = JSON.stringify(body);
      return random() < 0.1 ? text.slice(0, Math.floor(random() * text.length)) : text;
    };

    const agent = new Agent({ keepAlive: true, maxSockets: AT_ONCE });
    const ask = (): Promise<{ status: number; text: string; sent: string }> => {
      const write = random() < 0.8;
      const path = write
        ? random() < 0.9
          ? '/v1/calls?wait=0'
          : pick(['/v1/sessions', '/debug/tool-reliability'])
        : pick(PATHS);
      const method = write ? 'POST' : pick(['GET', 'GET', 'GET', 'DELETE', 'PUT', 'PATCH', 'OPTIONS', 'POST', 'HEAD']);
      const headers: Record<string, string> = write
        ? { 'content-type': random() < 0.95 ? 'application/json' : 'text/xml' }
        : {};
      if (random() < 0.3) headers[pick(HEADERS)] = pick(TEXTS);
      const body = write ? bodyOf() : undefined;
      const { promise, resolve, reject } = Promise.withResolvers<{ status: number; text: string; sent: string }>();
      const sent = `${method} ${path} ${JSON.stringify(headers)} ${body ?? ''}`;
      const asked = request(rig.server.url + path, { method, headers, agent }, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          text += chunk;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text, sent }));
        response.on('error', reject);
      });
      asked.on('error', reject);
      asked.end(body);
      return promise;
    };

    const statuses = new Map<number, number>();
    let left = requests;
    const lane = async () => {
      while (left > 0) {
        left -= 1;
        const { status, text, sent } = await ask();
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        if (status >= 500 || status === 0) throw new Error(`${status} ${text.slice(0, 200)} for ${sent}`);
        if (/\bat .+:\d+:\d+|node_modules|\/src\/|file:\/\/|ioredis|ReplyError/.test(text))
          throw new Error(`a leak: ${text.slice(0, 400)} for ${sent}`);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
    agent.destroy();
    expect(rig.logged.filter(({ level }) => level === 'error')).toEqual([]);
    expect((await rig.ask('/readyz')).status).toBe(200);
    // Hostile, but not blind: some got through, and some were refused for every reason there is.
    for (const status of [200, 202, 400, 404, 405, 415])
      expect(statuses.get(status) ?? 0, String(status)).toBeGreaterThan(10);
  });
