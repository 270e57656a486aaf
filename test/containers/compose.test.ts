/** The composed stack as an operator meets it: brought up with one command, scaled, and robbed of a container under load. */

import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePort } from '../helpers/free-port.ts';
import { eventually } from '../helpers/signal.ts';
import { docker, hasDocker, hasImage } from './docker.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PROJECT = `pawl-test-${randomBytes(3).toString('hex')}`;
const PROMETHEUS = ['prom/prometheus:v3.8.0', 'prom/prometheus:latest'];
/** The API, three workers for reads and one for each other tier. */
const PROCESSES = 7;

/** What the stack of this test has no reason to count. */
const NOT_HAPPENED =
  /circuit_breaker|retry_attempts|retries_refused|in_doubt_total|lease_losses|fenced_writes|loop_guard|shadow|completions_total|groups_total|callbacks_sent|schedule_occurrences/;

const here = hasDocker();
const prometheus = here ? PROMETHEUS.find(hasImage) : undefined;
const token = randomBytes(16).toString('hex');
/** Whoever asked cannot approve. */
const approver = randomBytes(16).toString('hex');
const FILES = ['docker-compose.yml', 'test/containers/elevated.yml'];
let url: string;

interface Call {
  readonly callId: string;
  readonly status: string;
  readonly output?: { readonly content: unknown };
}

function compose(...args: readonly string[]): string {
  const files = FILES.flatMap((file) => ['-f', join(ROOT, file)]);
  return docker('compose', '--project-directory', ROOT, ...files, '-p', PROJECT, ...args);
}

async function request<T>(path: string, body?: unknown, as = token): Promise<T> {
  const answer = await fetch(`${url}${path}`, {
    headers: { authorization: `Bearer ${as}`, 'content-type': 'application/json' },
    ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
  });
  return (await answer.json()) as T;
}

async function callMany(session: string, count: number, name: string): Promise<Call[]> {
  return await Promise.all(
    Array.from({ length: count }, (_, number) =>
      request<Call>('/v1/calls?wait=60000', {
        tool: 'read',
        params: { path: 'greeting.txt' },
        session,
        idempotencyKey: `${name}-${number}`,
      }),
    ),
  );
}

describe.skipIf(!here)('docker compose', () => {
  beforeAll(async () => {
    const [httpPort, prometheusPort] = [await freePort(), await freePort()];
    url = `http://127.0.0.1:${httpPort}`;
    process.env['PAWL_HTTP_PORT'] = String(httpPort);
    process.env['PAWL_PROMETHEUS_PORT'] = String(prometheusPort);
    process.env['PAWL_IMAGE'] = `${PROJECT}:local`;
    process.env['PAWL_LOCK_DURATION_MS'] = '3000';
    process.env['PAWL_STALLED_INTERVAL_MS'] = '1000';
    process.env['PAWL_API_TOKENS'] = `${token}:operator,${approver}:approver`;
    if (prometheus !== undefined) process.env['PROMETHEUS_IMAGE'] = prometheus;
    compose('build', '--quiet');
    compose('up', '-d', '--wait', '--scale', 'worker-read-only=3');
  });
  afterAll(() => {
    compose('--profile', 'observability', 'down', '-v', '--rmi', 'local', '--remove-orphans', '--timeout', '5');
    docker('image', 'rm', '-f', `${PROJECT}:local`);
  });

  test('300 calls spread over three workers, and a container that is killed under load loses none', async () => {
    const { sessionKey } = await request<{ sessionKey: string }>('/v1/sessions', { kind: 'main' });
    const written = await request<Call>('/v1/calls?wait=30000', {
      tool: 'write',
      params: { path: 'greeting.txt', content: 'hello' },
      session: sessionKey,
    });
    expect(written.status).toBe('success');

    const calls = await callMany(sessionKey, 300, 'spread');
    expect(calls.filter(({ status }) => status !== 'success')).toEqual([]);
    const workers = new Set<string>();
    for (const { callId } of calls) {
      const { attempts } = await request<{ attempts: { worker: string }[] }>(`/v1/calls/${callId}`);
      for (const { worker } of attempts) workers.add(worker);
    }
    expect(workers.size).toBe(3);

    const underLoad = callMany(sessionKey, 600, 'killed');
    docker('kill', '-s', 'KILL', `${PROJECT}-worker-read-only-2`);
    expect((await underLoad).filter(({ status }) => status !== 'success')).toEqual([]);
    compose('up', '-d', '--wait', '--no-recreate', '--scale', 'worker-read-only=3');
  });

  test('an elevated call runs once a person approved it; its use and the audit trail are kept in volumes', async () => {
    const channel = { kind: 'operator' };
    const { sessionKey } = await request<{ sessionKey: string }>('/v1/sessions', { kind: 'main', channel });
    const asked = request<Call>('/v1/calls?wait=60000', {
      tool: 'deploy',
      params: { release: 'r1' },
      session: sessionKey,
      idempotencyKey: 'deploy-1',
    });
    const pending = async () => {
      const { approvals } = await request<{ approvals: { id: string; digest: string }[] }>(
        '/v1/approvals?state=pending',
      );
      return approvals[0];
    };
    const { id, digest } = await eventually(pending, { what: 'the approval' });
    await request(`/v1/approvals/${id}`, { decision: 'approve', digest }, approver);
    expect((await asked).status).toBe('success');

    const list = (service: string, folder: string) => compose('exec', '-T', service, 'ls', `/var/lib/pawl/${folder}`);
    expect(list('worker-elevated', 'used-approvals').trim()).not.toBe('');
    // Another worker sees the same folder.
    expect(list('worker-system', 'used-approvals')).toBe(list('worker-elevated', 'used-approvals'));
    expect(await eventually(() => list('api', 'audit'), { what: 'the audit trail', everyMs: 500 })).toContain('.jsonl');
    expect(compose('exec', '-T', 'api', 'pawl', 'doctor')).toContain('/var/lib/pawl');
  });

  test('a tool’s program runs in a sandbox of its container: it writes in the workspace, and sees no network and no secret', async () => {
    const { sessionKey } = await request<{ sessionKey: string }>('/v1/sessions', { kind: 'main' });
    const script = 'echo made > made.txt; cat made.txt; tail -n +3 /proc/net/dev | cut -d: -f1; ! cat /run/pawl/*';
    const { status, output } = await request<Call>('/v1/calls?wait=60000', {
      tool: 'shell',
      params: { command: ['sh', '-c', script] },
      session: sessionKey,
    });
    expect({ status, output }).toMatchObject({ status: 'success', output: { content: { exitCode: 0 } } });
    expect(output?.content).toMatchObject({ stdout: expect.stringMatching(/^made\n\s*lo\n$/) });
  });

  test('the stack is closed: no token, no answer; Redis’ users reach what they need and no more', async () => {
    expect((await fetch(`${url}/v1/tools`)).status).toBe(401);
    const ask = (user: string, ...command: readonly string[]) => {
      const password = docker(
        'compose',
        '-p',
        PROJECT,
        'run',
        '--rm',
        '--no-deps',
        '-T',
        '--entrypoint',
        'cat',
        'secrets',
        `/secrets/redis/${user}.password`,
      );
      return compose(
        'exec',
        '-T',
        'redis',
        'redis-cli',
        '--no-auth-warning',
        '--user',
        user,
        '--pass',
        password.trim(),
        ...command,
      );
    };
    expect(ask('worker-read-only', 'SET', 'pawl:{read-only}:probe', '1')).toContain('OK');
    expect(ask('worker-read-only', 'SET', 'pawl:{elevated}:probe', '1')).toContain('NOPERM');
    expect(ask('worker-read-only', 'CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')).toContain('NOPERM');
    expect(ask('board', 'DEL', 'pawl:{read-only}:probe')).toContain('NOPERM');
    expect(ask('board', 'GET', 'pawl:{read-only}:probe')).toContain('1');
    expect(ask('api', 'FLUSHALL')).toContain('NOPERM');
    expect(ask('api', 'DEL', 'pawl:{read-only}:probe')).toContain('1');
  });

  test.skipIf(prometheus === undefined)(
    'Prometheus scrapes every process, and the dashboards’ queries return data',
    async () => {
      compose('--profile', 'observability', 'up', '-d', 'prometheus');
      const address = `http://127.0.0.1:${process.env['PAWL_PROMETHEUS_PORT']}`;
      const ask = async (query: string) => {
        const body = new URLSearchParams({ query });
        const answer = await fetch(`${address}/api/v1/query`, { method: 'POST', body }).catch(() => undefined);
        if (answer === undefined) return undefined;
        const { data, error } = (await answer.json()) as {
          data?: { result: { value: [number, string] }[] };
          error?: string;
        };
        expect(error, query).toBeUndefined();
        return data?.result;
      };
      const up = async () => Number((await ask('sum(up)'))?.[0]?.value[1]) === PROCESSES;
      expect(await eventually(up, { what: 'every process to be scraped', deadlineMs: 60_000, everyMs: 500 })).toBe(
        true,
      );

      // Errors and replays, beside the calls that came before; the rest of what can go wrong did not, and has no series.
      const { sessionKey } = await request<{ sessionKey: string }>('/v1/sessions', { kind: 'main' });
      const missing = { tool: 'read', params: { path: 'missing.txt' }, session: sessionKey, idempotencyKey: 'missing' };
      const silent = async () => {
        await request('/v1/calls?wait=30000', missing);
        const answers = await Promise.all(
          dashboardQueries().map(async (query) => ({ query, result: await ask(query) })),
        );
        const empty = answers.filter(({ result }) => result?.length === 0).map(({ query }) => query);
        return empty.filter((query) => !NOT_HAPPENED.test(query));
      };
      // A rate needs two scrapes of what it counts.
      const isTold = async () => (await silent()).length === 0;
      await eventually(isTold, { what: 'data', deadlineMs: 60_000, everyMs: 2_000 }).catch(() => undefined);
      expect(await silent()).toEqual([]);
    },
  );

  test('a stack that is taken down and brought up again has kept every call', async () => {
    const ids = async () => {
      const { calls } = await request<{ calls: { callId: string }[] }>('/v1/calls?limit=1000');
      return calls.map(({ callId }) => callId).sort();
    };
    const before = await ids();
    expect(before.length).toBeGreaterThan(100);
    compose('down', '--timeout', '5');
    compose('up', '-d', '--wait', '--scale', 'worker-read-only=3');
    expect(await eventually(ids, { what: 'an answer of the new API' })).toEqual(before);
  });
});

/** All queries of the Grafana dashboards, as Grafana sends them with nothing chosen. */
function dashboardQueries(): string[] {
  const folder = join(ROOT, 'dashboards/grafana');
  return readdirSync(folder)
    .filter((name) => name.endsWith('.json'))
    .flatMap((name) => {
      const { panels } = JSON.parse(readFileSync(join(folder, name), 'utf8')) as {
        readonly panels: readonly { readonly targets: readonly { readonly expr: string }[] }[];
      };
      return panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
    })
    .map((expr) => expr.replaceAll('$__rate_interval', '1m').replaceAll(/"\$\w+"/g, '".*"'));
}
