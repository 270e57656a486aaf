import { describe, expect, test } from 'vitest';
import { RateLimiter } from '../../../../src/producer/http/core/rate-limit.ts';
import { eventually } from '../../../helpers/signal.ts';
import { startRig, testTools } from '../rig.ts';

const apiTokens = [
  { token: 'token-one', role: 'agent' as const },
  { token: 'token-two', role: 'agent' as const },
];

describe('429', () => {
  test('a token has its own rate: above it the response has Retry-After, and other tokens are not affected', async () => {
    const { ask } = await startRig({ settings: { apiTokens, http: { requestsPerSecond: 1 } } });
    const asked = await Promise.all(Array.from({ length: 20 }, () => ask('/v1/sessions', { token: 'token-one' })));
    const refused = asked.filter(({ status }) => status === 429);
    expect(refused.length).toBeGreaterThan(10);
    for (const { body, headers } of refused) {
      expect(body.error.code).toBe('RATE_LIMITED');
      expect(Number(headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
    }
    expect((await ask('/v1/sessions', { token: 'token-two' })).status).toBe(200);
    expect((await ask('/healthz')).status).toBe(200);
  });

  test('each message of an MCP batch counts as a request', async () => {
    const { ask } = await startRig({ settings: { apiTokens, http: { maxRequests: 3 } } });
    const post = (count: number) =>
      ask('/mcp', {
        method: 'POST',
        token: 'token-one',
        headers: { accept: 'application/json, text/event-stream' },
        json: Array.from({ length: count }, (_, id) => ({ jsonrpc: '2.0', id, method: 'ping' })),
      });
    const refused = await post(4);
    expect([refused.status, refused.body.error.code]).toEqual([429, 'RATE_LIMITED']);
    // What was refused, and what was answered, takes no place any more.
    for (let time = 0; time < 4; time += 1) await eventually(async () => (await post(3)).status !== 429);
  });

  test('the number of waiting requests of a token is limited', async () => {
    const { tools, started, release } = testTools();
    const { call, ask } = await startRig({ tools, settings: { apiTokens, http: { maxRequests: 1 } } });
    const waiting = call({ tool: 'hold', session: 's' }, { token: 'token-one' });
    await started.promise;
    expect((await ask('/v1/sessions', { token: 'token-one' })).status).toBe(429);
    expect((await ask('/v1/sessions', { token: 'token-two' })).status).toBe(200);
    release.fire();
    expect((await waiting).status).toBe(200);
    expect((await ask('/v1/sessions', { token: 'token-one' })).status).toBe(200);
  });

  test('a fleet with a full backlog takes no further call, and still answers questions', async () => {
    const { tools, started, release } = testTools();
    const { call, ask } = await startRig({ tools, settings: { http: { maxBacklog: 1 } } });
    const held = (await call({ tool: 'hold', session: 's' }, { wait: 0 })).body;
    await started.promise;
    let number = 0;
    const echo = () => call({ tool: 'echo', params: { text: 'x' }, session: 's', idempotencyKey: String(number++) });
    let refused = await echo();
    // The count before the first call still stands for half a second.
    while (refused.status !== 429) refused = await echo();
    expect(refused.headers.get('retry-after')).toBe('2');
    expect((await ask(`/v1/calls/${held.callId}`)).status).toBe(200);
    release.fire();
  });

  test('a budget fills again with time, to a second’s worth at most', () => {
    let nowMs = 0;
    const limits = new RateLimiter(
      { requestsPerSecond: 2, maxRequests: 10, maxBacklog: 1 },
      { monotonic: () => nowMs },
    );
    const enter = () => {
      try {
        limits.enter('one')();
        return true;
      } catch {
        return false;
      }
    };
    expect([enter(), enter(), enter()]).toEqual([true, true, false]);
    nowMs = 500;
    expect([enter(), enter()]).toEqual([true, false]);
    nowMs = 60_000;
    expect([enter(), enter(), enter()]).toEqual([true, true, false]);
  });
});
