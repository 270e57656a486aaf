import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import { FleetKeys } from '../../../src/shared/store/redis/keys.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { startRig, testTools } from '../http/rig.ts';
import { askingTool, modern } from './mcp-client.ts';

describe('tasks', () => {
  test('a long call becomes a task, which any server reports until its end', async () => {
    const { tools, release } = testTools();
    const rig = await startRig({ tools });
    const ask = modern(rig);
    const { result: task } = await ask('tools/call', { name: 'hold', arguments: {} });
    expect(task).toMatchObject({ resultType: 'task', status: 'working', pollIntervalMs: expect.any(Number) });
    const { taskId } = task;
    expect((await ask('tasks/get', { taskId })).result).toMatchObject({ status: 'working', resultType: 'complete' });
    expect(await ask('tasks/get', { taskId }, { 'mcp-name': 'other' })).toMatchObject({
      status: 400,
      error: { code: -32_020 },
    });
    release.fire();
    const done = await eventually(async () => {
      const { result } = await ask('tasks/get', { taskId });
      return result.status === 'completed' && result;
    });
    expect(done.result).toMatchObject({ content: [{ type: 'text', text: 'held' }] });
    expect((await ask('tasks/get', { taskId: 'nothing' })).error).toMatchObject({ code: -32_602 });
    expect((await ask('tasks/result', { taskId }, { 'mcp-name': 'other' })).error).toMatchObject({ code: -32_601 });
  });

  test('results of tasks and full outputs of truncated results pass the hooks after calls', async () => {
    const { tools, release } = testTools();
    const long = defineTool({
      name: 'long',
      version: '1.0.0',
      description: 'Answers.',
      tier: 'read-only',
      input: z.object({}),
      output: z.object({ card: z.string(), rest: z.string() }),
      maxOutputBytes: 200,
      run: () => ({ output: { card: '4711', rest: 'x'.repeat(500) } }),
    });
    const hook: Hook = {
      name: 'hide',
      afterCall: ({ result, tool }) => {
        if (tool.name === 'hold') return { content: 'hidden' };
        return result.status === 'success'
          ? { content: { ...(result.output.content as object), card: '****' } }
          : undefined;
      },
    };
    const ask = modern(await startRig({ tools: [...tools, long], hooks: [hook] }));
    const { taskId } = (await ask('tools/call', { name: 'hold', arguments: {} })).result;
    release.fire();
    const done = await eventually(async () => {
      const { result } = await ask('tasks/get', { taskId });
      return result.status === 'completed' && result;
    });
    expect(done.result).toMatchObject({ content: [{ type: 'text', text: 'hidden' }] });
    const { result } = await ask('tools/call', { name: 'long', arguments: {} });
    expect(result.structuredContent).toEqual({ card: '****', rest: 'x'.repeat(500) });
    expect(JSON.stringify(result)).not.toContain('4711');
  });

  test('a task can ask, be answered and be cancelled', async () => {
    const asks = signal();
    const { tools } = testTools();
    const ask = modern(await startRig({ tools: [askingTool(asks.promise), ...tools] }));
    const { taskId } = (await ask('tools/call', { name: 'asking', arguments: { greeting: 'Hi' } })).result;
    const working = (await ask('tasks/get', { taskId })).result;
    expect(Date.parse(working.lastUpdatedAt)).toBeGreaterThanOrEqual(Date.parse(working.createdAt));
    asks.fire();
    const status = async (wanted: string) =>
      eventually(async () => {
        const { result } = await ask('tasks/get', { taskId });
        return result.status === wanted && result;
      });
    expect((await status('input_required')).inputRequests).toHaveProperty('who.method', 'elicitation/create');
    const inputResponses = { who: { action: 'accept', content: { name: 'Bo' } } };
    expect((await ask('tasks/update', { taskId, inputResponses })).result.resultType).toBe('complete');
    expect((await status('completed')).result.content[0].text).toBe('Hi, Bo, kept');
    const held = (await ask('tools/call', { name: 'hold', arguments: {} })).result;
    await ask('tasks/cancel', { taskId: held.taskId });
    await eventually(async () => (await ask('tasks/get', { taskId: held.taskId })).result.status === 'cancelled');
  });

  test('a task asks whatever its question is named', async () => {
    const asks = signal();
    const ask = modern(await startRig({ tools: [askingTool(asks.promise, 'constructor')] }));
    const { taskId } = (await ask('tools/call', { name: 'asking', arguments: { greeting: 'Hi' } })).result;
    asks.fire();
    const status = (wanted: string) =>
      eventually(async () => {
        const { result } = await ask('tasks/get', { taskId });
        return result.status === wanted && result;
      });
    expect(Object.keys((await status('input_required')).inputRequests)).toEqual(['constructor']);
    const inputResponses = { constructor: { action: 'accept', content: { name: 'Bo' } } };
    await ask('tasks/update', { taskId, inputResponses });
    expect((await status('completed')).result.content[0].text).toBe('Hi, Bo, kept');
  });

  test('a writer to Redis without a key neither answers a task nor changes what it calls', async () => {
    const settings = { signingKeys: [{ kid: 'k', key: 'a key of this test alone' }] };
    const asks = signal();
    const rig = await startRig({ tools: [askingTool(asks.promise)], settings });
    const ask = modern(rig);
    const { taskId } = (await ask('tools/call', { name: 'asking', arguments: { greeting: 'Hi' } })).result;
    asks.fire();
    const isAsked = async () => (await ask('tasks/get', { taskId })).result.status === 'input_required';
    await eventually(isAsked);
    const { redis } = rig.pawl.backend;
    const key = new FleetKeys(rig.settings.prefix).task(taskId);
    const answer = JSON.stringify({ action: 'accept', content: { name: 'Mallory' } });
    for (const forged of [answer, ` ${JSON.stringify({ answer })}`]) {
      await redis.hset(key, 'answer:0:who', forged);
      expect(await isAsked()).toBe(true);
    }
    for (const [member, value] of Object.entries(await redis.hgetall(key)))
      await redis.hset(key, member, value.replace('Hi', 'Bye'));
    const inputResponses = { who: { action: 'accept', content: { name: 'Bo' } } };
    expect((await ask('tasks/update', { taskId, inputResponses })).error).toMatchObject({ code: -32_602 });
    expect((await rig.ask('/v1/calls')).body.calls).toHaveLength(1);
  });
});
