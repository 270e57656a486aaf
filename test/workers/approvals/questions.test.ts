import { expect, test } from 'vitest';
import { z } from 'zod';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { ElicitationState } from '../../../src/workers/approvals/questions.ts';
import { requestUserInput } from '../../../src/workers/tools/request-user-input.ts';
import { eventually } from '../../helpers/signal.ts';
import { startRig } from '../../producer/http/rig.ts';

const OPTIONS = [
  { label: 'Yes, go on', value: 'yes' },
  { label: 'No', value: 'no' },
];

const askTwice = defineTool({
  name: 'ask_twice',
  version: '1.0.0',
  description: 'Asks the same twice.',
  tier: 'system',
  needs: ['channel'],
  input: z.object({}),
  async run(_params, ctx) {
    const first = await ctx.channel.ask?.({ text: 'Go on?' });
    const second = await ctx.channel.ask?.({ text: 'Go on?' });
    return { output: [first, second] };
  },
});

async function rig(settings = {}) {
  const started = await startRig({ tools: [requestUserInput, askTwice], tiers: ['system'], settings });
  const pending = async () => (await started.ask('/v1/questions')).body.questions;
  const oneOf = (count = 1) =>
    eventually(
      async () => {
        const questions = await pending();
        return questions.length === count ? questions : undefined;
      },
      { what: 'the question' },
    );
  const open = (channel: object, more = {}) =>
    started.ask('/v1/sessions', { method: 'POST', json: { sessionKey: 's', channel, ...more } });
  const start = async (params: object, tool = 'request_user_input') =>
    (await started.call({ tool, session: 's', params }, { wait: 0 })).body.callId as string;
  const end = async (callId: string) => (await started.ask(`/v1/calls/${callId}?wait=8000`)).body;
  const reply = (id: string, json: object) =>
    started.ask(`/v1/questions/${encodeURIComponent(id)}`, { method: 'POST', json });
  /** How questions ended, the newest first, as the audit trail has it. */
  const ended = async () => (await started.pawl.audit({ type: 'question-ended' })).map(({ record }) => record);
  return { ...started, pending, oneOf, open, start, end, reply, ended };
}

test('a question with options waits for a person, takes one of them, once, and the answer reaches the tool (C19)', async () => {
  const { oneOf, open, start, end, reply, pending, ended } = await rig({
    signingKeys: [{ kid: 'k', key: 'a key that nobody else has' }],
  });
  await open({ kind: 'operator' });
  const callId = await start({ question: 'Delete the old index?', options: OPTIONS });
  const [question] = await oneOf();
  expect(question).toMatchObject({ text: 'Delete the old index?', options: OPTIONS, freeText: false, callId });
  const refused = await reply(question.id, { answer: 'perhaps' });
  expect(refused.status).toBe(400);
  expect(refused.body.error.message).toContain('"yes", "no"');
  for (const json of [{}, { answer: ['yes'] }, { dismiss: false }, { answer: 'yes', dismiss: true }])
    expect((await reply(question.id, json)).body.error.message).toContain('{ "answer": TEXT } or { "dismiss": true }');
  const both = await Promise.all([reply(question.id, { answer: 'yes' }), reply(question.id, { answer: 'no' })]);
  expect(both.map(({ status }) => status).sort()).toEqual([200, expect.toBeOneOf([404, 409])]);
  const { result } = await end(callId);
  const won = both[0]?.status === 200 ? 'yes' : 'no';
  expect(result.output.content).toEqual({ state: 'answered', answer: won, by: 'local operator' });
  expect(await pending()).toEqual([]);
  const [record, ...more] = await eventually(async () => {
    const records = await ended();
    return records.length > 0 && records;
  });
  expect(record).toMatchObject({
    questionId: question.id,
    callId,
    sessionKey: 's',
    state: 'answered',
    question: 'Delete the old index?',
    answer: won,
    by: 'local operator',
  });
  expect(more).toEqual([]);
});

test('the same words asked twice are two questions; one is answered freely, one dismissed', async () => {
  const { oneOf, open, start, end, reply } = await rig();
  await open({ kind: 'operator' });
  const callId = await start({}, 'ask_twice');
  const [first] = await oneOf();
  expect((await reply(first.id, { answer: 'as you like' })).status).toBe(200);
  const [second] = await eventually(async () => {
    const questions = await oneOf();
    return questions[0].id === first.id ? undefined : questions;
  });
  expect((await reply(second.id, { dismiss: true })).status).toBe(200);
  expect((await end(callId)).result.output.content).toEqual([
    { state: 'answered', value: 'as you like', by: 'local operator' },
    { state: 'dismissed', by: 'local operator' },
  ]);
});

test('a question without an answer expires; a cancelled call takes its question back; a webhook cannot ask', async () => {
  const { ask, oneOf, open, start, end, pending, ended } = await rig();
  await open({ kind: 'operator' });
  const late = await end(await start({ question: 'Anybody?', timeout_ms: 1_000 }));
  expect(late.result.output.content).toEqual({ state: 'expired' });
  await eventually(async () => (await ended()).some(({ state }) => state === 'expired'), { what: 'the record' });
  const callId = await start({ question: 'Still there?' });
  await oneOf();
  expect((await ask(`/v1/calls/${callId}`, { method: 'DELETE' })).status).toBe(200);
  await eventually(async () => (await pending()).length === 0, { what: 'the question to be taken back' });
  await open({ kind: 'webhook', url: 'http://127.0.0.1:9/hook' }, { sessionKey: 'w' });
  const oneWay = await ask('/v1/calls', {
    method: 'POST',
    json: { tool: 'request_user_input', session: 'w', params: { question: 'Go on?' } },
  });
  expect(oneWay.body.error.message).toContain('webhook channel cannot bring answers back');
});

test('an answer that was written without the key is ignored, and such a question is not shown; both are on record', async () => {
  const { world, oneOf, open, start, end, pending, pawl } = await rig({
    signingKeys: [{ kid: 'k', key: 'a key that nobody else has' }],
  });
  await open({ kind: 'operator' });
  const callId = await start({ question: 'Pay?', options: OPTIONS });
  const [{ id }] = await oneOf();
  const key = `${world.prefix}:{fleet}:question:${id}`;
  const stored = (await pawl.backend.redis.hget(key, 'question')) ?? '';
  await pawl.backend.redis.hset(key, 'question', stored.replace('Pay?', 'Shall I wait?'));
  expect(await pending()).toEqual([]);
  await pawl.backend.redis.hset(key, {
    state: 'answered',
    answer: JSON.stringify({ state: 'answered', value: 'yes', by: 'admin' }),
    signature: 'k:forged',
  });
  expect((await end(callId)).result.output.content).toMatchObject({ state: 'expired' });
  const refused = async () => (await pawl.audit({ type: 'refused' })).map(({ record }) => record['what']);
  await eventually(
    async () => {
      const found = new Set(await refused());
      return found.has('question') && found.has('answer');
    },
    { what: 'both refusals in the audit trail' },
  );
});

test('a worker that lost the call does not take back the question of the one that has it now', async () => {
  const { pawl, oneOf } = await rig();
  const { questions } = pawl.backend;
  const request = { text: 'Go on?', freeText: true, callId: 'c', session: 's', shownIn: 's' };
  const asked = { ...request, channel: 'operator', actorId: 'ada' };
  const lost = new AbortController();
  const first = new ElicitationState(questions, async () => {}).ask(asked, {
    number: 1,
    timeoutMs: 60_000,
    signal: lost.signal,
  });
  const [{ id }] = await oneOf();
  const second = new ElicitationState(questions, async () => {}).ask(asked, {
    number: 1,
    timeoutMs: 60_000,
    signal: undefined,
  });
  lost.abort(new PawlError('LEASE_LOST'));
  await expect(first).rejects.toMatchObject({ code: 'LEASE_LOST' });
  await pawl.questions.reply(id, { answer: 'yes' }, 'ada');
  expect(await second).toEqual({ state: 'answered', value: 'yes', by: 'ada' });
});

test('a tenant is shown its questions, however many others have asked more urgent ones', async () => {
  const apiTokens = [{ token: 'operator-of-acme', role: 'operator' as const, tenantId: 'acme' }];
  const { pawl, ask } = await rig({ apiTokens });
  const question = { text: 'Go on?', freeText: true, callId: 'c', session: 's', shownIn: 's' };
  const asked = { ...question, channel: 'operator', actorId: 'ada' };
  const { questions } = pawl.backend;
  const others = Array.from({ length: 250 }, (_, number) =>
    questions.ask(`other.${number}`, { ...asked, tenantId: 'other' }, 60_000),
  );
  await Promise.all([...others, questions.ask('acme.1', { ...asked, tenantId: 'acme' }, 600_000)]);
  const { body } = await ask('/v1/questions', { token: 'operator-of-acme' });
  expect(body.questions.map(({ id }: { readonly id: string }) => id)).toEqual(['acme.1']);
});

test('a question’s time to answer is rounded up to whole milliseconds, and refused when it is no time', async () => {
  const { pawl } = await rig();
  const { questions } = pawl.backend;
  const request = { text: 'Go on?', freeText: true, callId: 'c', session: 's', shownIn: 's' };
  const asked = { ...request, channel: 'operator', actorId: 'ada' };
  const ask = (timeoutMs: number) =>
    new ElicitationState(questions, async () => {}).ask(asked, { number: 1, timeoutMs, signal: undefined });
  for (const timeoutMs of [Number.NaN, Number.POSITIVE_INFINITY, -1, 1e20])
    await expect(ask(timeoutMs)).rejects.toThrow('must be 0 to 604800000 milliseconds');
  expect(await pawl.questions.list()).toEqual([]);
  expect(await ask(0.5)).toEqual({ state: 'expired' });
});

test('a question of a call that names another actor is asked by its session’s actor, too', async () => {
  const { oneOf, open, call, pawl, reply, end } = await rig();
  await open({ kind: 'operator' }, { actorId: 'mallory' });
  const envelope = (await pawl.session('s')).envelope('request_user_input', { question: 'Go on?', options: OPTIONS });
  const asked = { ...envelope, target: { ...envelope.target, actorId: 'alice' } };
  const { callId } = (await call(asked, { wait: 0 })).body;
  const [question] = await oneOf();
  expect(question).toMatchObject({ actorId: 'alice', sessionActorId: 'mallory' });
  await reply(question.id, { answer: 'yes' });
  await end(callId);
});
