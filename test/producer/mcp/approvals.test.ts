import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { eventually, signal, within } from '../../helpers/signal.ts';
import { startRig, testTools } from '../http/rig.ts';
import { connectClient, modern } from './mcp-client.ts';

describe('an elevated call', () => {
  const danger = defineTool({
    name: 'danger',
    version: '1.0.0',
    description: 'Needs a person.',
    tier: 'elevated',
    // However long a busy machine takes for it.
    annotations: { taskSupport: 'forbidden' },
    input: z.object({ what: z.string() }),
    run: ({ what }) => ({ output: `did ${what}` }),
  });

  test.each([
    ['approve', { content: [{ type: 'text', text: 'did x' }] }],
    ['deny', { isError: true }],
  ])('asks the person at a local client, whose %s is final', async (decision, wanted) => {
    const rig = await startRig({ tools: [danger], tiers: ['elevated'] });
    const client = await connectClient(rig, 'modern');
    const shown: string[] = [];
    client.setRequestHandler('elicitation/create', ({ params }) => {
      shown.push(params.message);
      return { action: 'accept', content: { decision } };
    });
    expect(await client.callTool({ name: 'danger', arguments: { what: 'x' } })).toMatchObject(wanted);
    expect(shown).toEqual([expect.stringContaining('Approve danger?')]);
  });

  test('stays pending where the person at a local client closes the question without an answer', async () => {
    const rig = await startRig({ tools: [danger], tiers: ['elevated'] });
    const client = await connectClient(rig, 'modern');
    client.setRequestHandler('elicitation/create', () => ({ action: 'cancel' }));
    const { isError, _meta } = await client.callTool({ name: 'danger', arguments: { what: 'x' } });
    expect({ isError, _meta }).toMatchObject({ isError: true, _meta: { 'pawl/phase': 'awaiting-approval' } });
    const { record } = await rig.pawl.approvals.show(String(_meta?.['pawl/callId']));
    expect(record.state).toBe('pending');
  });

  test('comes back as the hooks behind calls leave it', async () => {
    const hook: Hook = { name: 'hide', afterCall: () => ({ content: 'hidden' }) };
    const rig = await startRig({ tools: [danger], tiers: ['elevated'], hooks: [hook] });
    const client = await connectClient(rig, 'modern');
    client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { decision: 'approve' } }));
    const { content } = await client.callTool({ name: 'danger', arguments: { what: 'x' } });
    expect(content).toEqual([{ type: 'text', text: 'hidden' }]);
  });

  test('that a person at the client approved becomes a task when it takes long, as any other', async () => {
    const release = signal();
    const slow = defineTool({
      name: 'slow',
      version: '1.0.0',
      description: 'Needs a person, and its time.',
      tier: 'elevated',
      input: z.object({}),
      async run() {
        await release.promise;
        return { output: 'did it' };
      },
    });
    const ask = modern(await startRig({ tools: [slow], tiers: ['elevated'] }));
    const call = { name: 'slow', arguments: {} };
    const { requestState } = (await ask('tools/call', call)).result;
    const inputResponses = { approval: { action: 'accept', content: { decision: 'approve' } } };
    const approved = ask('tools/call', { ...call, requestState, inputResponses });
    const { result: task } = await within(approved, 20_000, 'the task');
    expect(task).toMatchObject({ resultType: 'task', status: 'working' });
    release.fire();
    const done = await eventually(async () => {
      const { result } = await ask('tasks/get', { taskId: task.taskId });
      return result.status === 'completed' && result;
    });
    expect(done.result.content).toEqual([{ type: 'text', text: 'did it' }]);
  });

  test('of a token is pending: the client learns it at once and when it repeats the request, and others decide', async () => {
    const apiTokens = [{ token: 'an-operator', role: 'operator' as const }];
    const rig = await startRig({ tools: [danger], tiers: ['elevated'], settings: { apiTokens } });
    const ask = modern(rig);
    const call = { name: 'danger', arguments: { what: 'x' } };
    const headers = { authorization: 'Bearer an-operator', 'idempotency-key': 'k' };
    const pending = await ask('tools/call', call, headers);
    expect(pending.result).toMatchObject({ isError: true, _meta: { 'pawl/phase': 'awaiting-approval' } });
    const { record, digest } = await rig.pawl.approvals.show(pending.result._meta['pawl/callId']);
    await rig.pawl.approvals.decide(record.request.id, { decision: 'approve', digest, by: 'somebody else' });
    expect((await ask('tools/call', call, headers)).result.content).toEqual([{ type: 'text', text: 'did x' }]);
  });
});

test('a call that needs a person by policy is reported at once in every tier, also when it is repeated', async () => {
  const settings = {
    policy: { global: { tools: { echo: 'ask' as const } } },
    apiTokens: [{ token: 'an-operator', role: 'operator' as const }],
  };
  const ask = modern(await startRig({ ...testTools(), settings }));
  const call = { name: 'echo', arguments: { text: 'x' } };
  const headers = { authorization: 'Bearer an-operator', 'idempotency-key': 'k' };
  for (const time of ['the first', 'the second']) {
    const { result } = await within(ask('tools/call', call, headers), 20_000, `${time} answer`);
    expect(result._meta, time).toMatchObject({ 'pawl/phase': 'awaiting-approval' });
  }
});
