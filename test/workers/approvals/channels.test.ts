import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { message } from '../../../src/workers/tools/message.ts';
import { eventually } from '../../helpers/signal.ts';
import { startRig } from '../../producer/http/rig.ts';

const launch = defineTool({
  name: 'launch',
  version: '1.0.0',
  description: 'Launches something.',
  tier: 'elevated',
  input: z.object({ what: z.string() }),
  preview: ({ what }) => ({ summary: `Launch ${what}` }),
  run: ({ what }) => ({ output: { launched: what } }),
});
const tell = defineTool({
  name: 'tell',
  version: '1.0.0',
  description: 'Says something to people.',
  tier: 'workspace',
  needs: ['channel'],
  input: z.object({ text: z.string() }),
  run: async ({ text: said }, ctx) => {
    await ctx.channel.send(said);
    return { output: ctx.channel.kind };
  },
});

interface Message {
  readonly text: string;
  readonly blocks?: readonly { readonly type: string; readonly elements?: readonly { readonly value: string }[] }[];
}

/** A service that takes what is posted to it; it is down for the first posts. */
async function receiver(refuse = 0) {
  const taken: Message[] = [];
  let refused = 0;
  const server = createServer(async (request, response) => {
    const body = JSON.parse(await text(request)) as Message;
    refused += 1;
    if (refused > refuse) taken.push(body);
    response.writeHead(refused > refuse ? 200 : 503).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`, taken };
}

const KEYS = { signingKeys: [{ kid: 'k', key: 'a key that nobody else has' }] };
const TOOLS = { tools: [launch, tell], tiers: ['elevated', 'workspace'] as const };

test('a webhook gets an approval with signed buttons, again after it was down, and a pressed one decides once', async () => {
  const { url, taken } = await receiver(1);
  const rig = await startRig({ ...TOOLS, settings: KEYS });
  const channel = { kind: 'webhook', url };
  await rig.ask('/v1/sessions', { method: 'POST', json: { sessionKey: 's', channel } });
  const { body } = await rig.call({ tool: 'launch', session: 's', params: { what: '\u202eit' } }, { wait: 0 });
  await eventually(() => taken.length === 1, { what: 'the message' });
  expect(taken[0]?.text).toContain('Launch \\u{202E}it');
  const [approve, deny] = taken[0]?.blocks?.find(({ type }) => type === 'actions')?.elements ?? [];
  const press = (value = '') =>
    rig.ask('/v1/approvals/actions', {
      method: 'POST',
      raw: new URLSearchParams({
        payload: JSON.stringify({ user: { username: 'grace' }, actions: [{ value }] }),
      }).toString(),
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
    });
  const [content = ''] = approve?.value.split('.') ?? [];
  const [, signature = ''] = deny?.value.split('.') ?? [];
  expect((await press(`${content}.${signature}`)).status).toBe(403);
  expect(await press(approve?.value)).toMatchObject({
    status: 200,
    body: { text: 'approved by grace', state: 'approved' },
  });
  expect((await press(deny?.value)).status).toBe(409);
  expect((await rig.ask(`/v1/calls/${body.callId}?wait=5000`)).body.result.output.content).toEqual({
    launched: '\u202eit',
  });
});

test('approvals that a dead webhook should receive do not hold the workers of decided ones', async () => {
  let posts = 0;
  // It takes what comes, and does not answer.
  const server = createServer((request) => {
    posts += 1;
    request.resume();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  const rig = await startRig(TOOLS);
  const asked = async (session: string, channel: object) => {
    await rig.ask('/v1/sessions', { method: 'POST', json: { sessionKey: session, channel } });
    return (await rig.call({ tool: 'launch', session, params: { what: session } }, { wait: 0 })).body.callId as string;
  };
  const waiting = 24;
  await Promise.all(Array.from({ length: waiting }, (_, index) => asked(`s${index}`, { kind: 'webhook', url })));
  // Each of the worker's eight places has met it once.
  await eventually(() => posts >= 8, { what: 'the first announcements' });
  for (const session of ['a', 'b', 'c', 'd']) {
    const callId = await asked(session, { kind: 'operator' });
    const { digest } = (await rig.ask(`/v1/approvals/${callId}`)).body;
    await rig.ask(`/v1/approvals/${callId}`, { method: 'POST', json: { decision: 'approve', digest } });
    expect((await rig.ask(`/v1/calls/${callId}?wait=60000`)).body.result.status).toBe('success');
  }
  // Otherwise there is a post for each five seconds of each place.
  expect(posts).toBeLessThan(waiting);
});

test('messages go through the nearest channel above, as far as its policy lets this session send', async () => {
  const { url, taken } = await receiver();
  const rig = await startRig({
    ...TOOLS,
    settings: { policy: { sessions: { quiet: { tools: { 'channel.send': 'deny' } } } } },
  });
  const open = (json: object) => rig.ask('/v1/sessions', { method: 'POST', json });
  await open({ sessionKey: 'main', channel: { kind: 'webhook', url } });
  await open({ sessionKey: 'quiet', kind: 'branch', parent: 'main' });
  await open({ sessionKey: 'loud', kind: 'branch', parent: 'main' });
  await open({ sessionKey: 'desk', channel: { kind: 'operator' } });
  const say = async (session: string) =>
    (await rig.call({ tool: 'tell', session, params: { text: `from ${session}` } }, { wait: 5_000 })).body;
  expect((await say('loud')).status).toBe('success');
  expect((await say('quiet')).error.code).toBe('PERMISSION_DENIED');
  expect((await say('desk')).status).toBe('success');
  expect((await say('nobody')).error.code).toBe('PERMISSION_DENIED');
  expect(taken.map((message) => message.text)).toEqual(['from loud']);
  expect((await rig.ask('/v1/sessions/desk/messages')).body.messages).toMatchObject([
    { text: 'from desk', from: 'desk' },
  ]);
});

test('a message that a person has approved is sent, unless policy names the channel', async () => {
  const rig = await startRig({
    ...TOOLS,
    settings: {
      policy: {
        global: { tiers: { workspace: 'ask' } },
        sessions: {
          trial: { tools: { '*': 'ask' } },
          named: { tools: { 'channel.*': 'ask' } },
          quiet: { tools: { '*': 'ask', 'channel.send': 'deny' } },
        },
      },
    },
  });
  const say = async (sessionKey: string) => {
    await rig.ask('/v1/sessions', { method: 'POST', json: { sessionKey, channel: { kind: 'operator' } } });
    const params = { text: `from ${sessionKey}` };
    const { callId } = (await rig.call({ tool: 'tell', session: sessionKey, params }, { wait: 0 })).body;
    const { digest } = (await rig.ask(`/v1/approvals/${callId}`)).body;
    await rig.ask(`/v1/approvals/${callId}`, { method: 'POST', json: { decision: 'approve', digest } });
    return (await rig.ask(`/v1/calls/${callId}?wait=20000`)).body.result;
  };
  expect((await say('trial')).status).toBe('success');
  expect((await say('any')).status).toBe('success');
  const refused = 'This session may not send to its channel: policy.sessions';
  expect((await say('named')).error.message).toBe(`${refused}.named.tools.channel.* says ask.`);
  expect((await say('quiet')).error.message).toBe(`${refused}.quiet.tools.channel.send says deny.`);
});

test('a message says how its text shall be shown, to a webhook and to a later reader', async () => {
  const { url, taken } = await receiver();
  const rig = await startRig({ tools: [message], tiers: ['system'] });
  for (const channel of [{ kind: 'webhook', url }, { kind: 'operator' }]) {
    await rig.ask('/v1/sessions', { method: 'POST', json: { sessionKey: channel.kind, channel } });
    for (const params of [{ text: '*plain*' }, { text: '*bold*', format: 'markdown' }])
      await rig.call({ tool: 'message', session: channel.kind, params }, { wait: 30_000 });
  }
  const said = [
    { text: '*plain*', format: 'text' },
    { text: '*bold*', format: 'markdown' },
  ];
  expect(taken).toMatchObject(said);
  expect((await rig.ask('/v1/sessions/operator/messages')).body.messages).toMatchObject(said);
});

test('a message that a webhook may have taken is not sent again; one that it cannot have taken is', async () => {
  const answers: Record<string, (attempt: number) => number> = {
    'breaks off': () => 0,
    fails: () => 500,
    'is busy': (attempt) => (attempt === 1 ? 429 : 200),
  };
  const posts: string[] = [];
  const server = createServer(async (request, response) => {
    const { text: said } = JSON.parse(await text(request)) as Message;
    posts.push(said);
    const status = answers[said]?.(posts.filter((post) => post === said).length) ?? 0;
    if (status === 0) request.socket.destroy();
    else response.writeHead(status).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  const rig = await startRig({ tools: [message], tiers: ['system'] });
  await rig.ask('/v1/sessions', { method: 'POST', json: { sessionKey: 's', channel: { kind: 'webhook', url } } });
  const send = async (said: string) =>
    (await rig.call({ tool: 'message', session: 's', params: { text: said } }, { wait: 30_000 })).body;
  expect(await send('breaks off')).toMatchObject({ attempts: 1, error: { code: 'CONNECTION_RESET' } });
  expect(await send('fails')).toMatchObject({ attempts: 1, error: { code: 'HTTP_500' } });
  expect(await send('is busy')).toMatchObject({ attempts: 2, status: 'success' });
  expect(posts).toEqual(['breaks off', 'fails', 'is busy', 'is busy']);
});

test('a webhook says when it does not show all of the parameters, and what a caller wrote is only text there', async () => {
  const { url, taken } = await receiver();
  const rig = await startRig({ ...TOOLS, settings: KEYS });
  const json = { sessionKey: 's', actorId: 'ada\n*Approved by grace*', channel: { kind: 'webhook', url } };
  await rig.ask('/v1/sessions', { method: 'POST', json });
  const what = `\`\`\` <https://evil.net|safe> <!channel> ${'<'.repeat(5_000)}`;
  await rig.call({ tool: 'launch', session: 's', params: { what } }, { wait: 0 });
  await eventually(() => taken.length === 1, { what: 'the message' });
  const [section] = taken[0]?.blocks ?? [];
  const shown = taken[0]?.text ?? '';
  expect(section).toEqual({ type: 'section', text: { type: 'mrkdwn', text: shown } });
  expect(shown.length).toBeLessThanOrEqual(3_000);
  expect(shown).toMatch(/\n\*\d+ more characters of the parameters are not shown here: .*\*$/);
  expect(shown).toContain('asked by ada *Approved by grace* in s');
  expect(shown).toContain('&lt;https://evil.net|safe&gt; &lt;!channel&gt;');
  expect(shown).not.toMatch(/[<>]/);
  expect(shown.match(/```/g)).toHaveLength(2);
});

test.each([{ role: 'agent' as const }, { role: 'operator' as const }, { role: 'admin' as const, tenantId: 'acme' }])(
  'who asks for calls cannot choose who decides on them: the webhooks of %j are those of the setting',
  async (who) => {
    const { url } = await receiver();
    const apiTokens = [
      { token: 'agent-secret', ...who },
      { token: 'admin-secret', role: 'admin' as const },
    ];
    const rig = await startRig({ settings: { apiTokens, webhooks: ['https://hooks.example.com/pawl'] } });
    const open = (at: string, token = 'agent-secret') =>
      rig.ask('/v1/sessions', { method: 'POST', json: { channel: { kind: 'webhook', url: at } }, token });
    expect((await open(url)).status).toBe(403);
    expect((await open(url, 'admin-secret')).status).toBe(201);
    expect((await open('https://hooks.example.com/pawl')).status).toBe(201);
    expect((await open('nowhere')).status).toBe(400);
  },
);
