/** Hooks that change a call, on real Redis and workers. */
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { AuditFormatter } from '../../../src/shared/audit/audit-record.ts';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import type { HookEvent } from '../../../src/shared/calls/hook-events.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { createLocalRunner } from '../../../src/testing.ts';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { signal } from '../../helpers/signal.ts';

import { OTHER, scripted } from './hooked-tool.ts';

describe('D5: hooks change a call on its way', () => {
  test('parameters, key, hints and values reach the tool; its result comes back rewritten', async () => {
    const seen: unknown[] = [];
    const tool = scripted(({ text }, ctx) => {
      seen.push([text, ctx.idempotencyKey, ctx.values.get('origin'), ctx.values.get('checked')]);
      ctx.values.set('length', text.length);
      return text;
    });
    const hook: Hook = {
      name: 'change',
      beforeCall: ({ params }) => ({
        params: { text: `${params['text']}!` },
        idempotencyKey: 'from the hook',
        carry: { origin: 'mail' },
      }),
      beforeAttempt: ({ params, values }) => {
        values.set('checked', true);
        return { params: { text: `${params['text']}!` } };
      },
      afterAttempt: ({ ending, values }) =>
        ending.kind === 'value'
          ? { result: { ...ending.result, display: `${values.get('length')} letters` } }
          : undefined,
      afterCall: () => ({ metadata: { seenBy: 'change' } }),
    };
    const { session, pawl } = await startFleet({ tools: [tool], hooks: [hook] });
    const result = await session.call(tool, { text: 'a' });
    expect(result.output).toEqual({ content: 'a!!', metadata: { display: '3 letters', seenBy: 'change' } });
    expect(seen).toEqual([['a!!', 'from the hook', 'mail', true]]);
    const record = await pawl.read(result.callId ?? '');
    expect(record?.request.envelope.control.fromHook).toBe('change');
    // What afterCall added is this caller's alone.
    expect(record?.outcome?.output?.metadata).toEqual({ display: '3 letters' });
  });

  test('hooks after an attempt see the parameters that ran: those that an approver or a hook made', async () => {
    const tool = scripted(({ text }) => text);
    const seen: unknown[] = [];
    const see = ({ params }: HookEvent) => void seen.push(params['text']);
    const hooks: Hook[] = [
      {
        name: 'change',
        beforeAttempt: ({ params }) => (params['text'] === 'edited' ? undefined : { params: { text: 'made' } }),
      },
      { name: 'see', afterAttempt: see },
    ];
    const fleet = await startFleet({ tools: [tool], hooks });
    expect((await fleet.session.call(tool, { text: 'asked' })).output?.content).toBe('made');
    const pawl = await fleet.openProducer({ policy: { global: { tools: { note: 'ask' } } } });
    const session = await pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
    const { callId, result } = pending(await session.submit(tool, { text: 'asked' }));
    const { digest } = await pawl.approvals.show(callId);
    await pawl.approvals.decide(callId, { decision: 'approve', digest, by: 'grace', params: { text: 'edited' } });
    expect((await result).output?.content).toBe('edited');
    expect(seen).toEqual(['made', 'edited']);
  });

  test('a secret that a hook puts into the parameters is in no log, error or record of the attempt (R31)', async () => {
    const secret = 'opened by the vault';
    const tool = defineTool({
      name: 'login',
      version: '1.0.0',
      description: 'Logs in.',
      tier: 'workspace',
      input: z.object({ user: z.string(), password: z.string().optional() }),
      run: ({ user, password }, ctx) => {
        ctx.log.info(`${user} comes with ${password}`, { password });
        if (user === 'eve') throw new Error(`no ${user} with ${password}`);
        return { output: { used: password } };
      },
    });
    const hook: Hook = {
      name: 'vault',
      beforeAttempt: ({ params }) => ({ params: { ...params, password: secret } }),
    };
    const fleet = await startFleet({ tools: [tool], hooks: [hook] });
    const refused = await fleet.session.call(tool, { user: 'eve' });
    expect(refused.error?.message).toBe('no eve with [redacted]');
    await fleet.session.call(tool, { user: 'ada' });
    const texts = new AuditFormatter([]);
    const records = fleet.audited.map((event) => texts.format(event, 0, 'id'));
    expect(records.filter((record) => record.includes('"type":"attempt"'))).toHaveLength(2);
    expect(records.join()).not.toContain(secret);

    const lines: unknown[] = [];
    const line = (...said: unknown[]) => void lines.push(said);
    const log = { debug: line, info: line, warn: line, error: line };
    const runner = createLocalRunner({ tools: [tool], hooks: [hook], log });
    await runner.run(tool, { user: 'eve' });
    await runner.close();
    expect(JSON.stringify(lines)).toContain('eve comes with [redacted]');
    expect(JSON.stringify(lines)).not.toContain(secret);
  });

  test('a denial before the call or the attempt runs nothing; a broken rewrite is refused', async () => {
    let runs = 0;
    const tool = scripted(() => {
      runs += 1;
    });
    const hook: Hook = {
      name: 'guard',
      beforeCall: ({ params }) => (params['text'] === 'call' ? { deny: 'not this' } : undefined),
      beforeAttempt: ({ params }) => {
        if (params['text'] === 'attempt') return { deny: 'nor that' };
        return params['text'] === 'broken' ? { params: { text: 7 } } : undefined;
      },
    };
    const { session } = await startFleet({ tools: [tool], hooks: [hook] });
    const codes = [];
    for (const text of ['call', 'attempt', 'broken'])
      codes.push((await session.call(tool, { text }, { idempotencyKey: text })).error?.code);
    expect(codes).toEqual(['PERMISSION_DENIED', 'PERMISSION_DENIED', 'INVALID_PARAMS']);
    expect(runs).toBe(0);
  });

  test('policy holds for what a hook makes of the parameters, before the call and before each attempt', async () => {
    const ran: string[] = [];
    const start = defineTool({
      name: 'start',
      version: '1.0.0',
      description: 'Starts a program.',
      tier: 'workspace',
      input: z.object({ command: z.array(z.string()) }),
      run: ({ command }) => {
        ran.push(command.join(' '));
        return { output: command };
      },
    });
    const makes = (kind: 'beforeCall' | 'beforeAttempt'): Hook => ({
      name: kind,
      [kind]: ({ params }: HookEvent) => {
        const [when, ...command] = params['command'] as string[];
        return when === kind ? { params: { command } } : undefined;
      },
    });
    const { session } = await startFleet({
      tools: [start],
      hooks: [makes('beforeCall'), makes('beforeAttempt')],
      settings: {
        policy: {
          global: {
            tools: {
              start: {
                decision: 'allow',
                commands: [
                  { prefix: ['make'], decision: 'ask' },
                  { prefix: ['rm'], decision: 'deny' },
                ],
              },
            },
          },
        },
      },
    });
    const errors = [];
    for (const kind of ['beforeCall', 'beforeAttempt'])
      for (const program of ['ls', 'make', 'rm'])
        errors.push((await session.call(start, { command: [kind, program] })).error);
    expect(ran).toEqual(['ls', 'ls']);
    const codes = [undefined, 'PERMISSION_DENIED', 'PERMISSION_DENIED'];
    expect(errors.map((error) => error?.code)).toEqual([...codes, ...codes]);
    expect(errors[4]?.message).toContain('a person cannot be asked about parameters that a hook made');
  });

  test('a result that a tool still returned after its signal was aborted goes through the hook, too', async () => {
    const began = signal();
    const tool = scripted(async (_params, { signal: stopped }) => {
      const told = new Promise((resolve) => stopped.addEventListener('abort', resolve));
      began.fire();
      await told;
      return 'card 4711';
    });
    const hook: Hook = {
      name: 'cards',
      afterAttempt: ({ ending }) =>
        ending.kind === 'value' ? { result: { ...ending.result, output: 'card ****' } } : undefined,
    };
    const { session } = await startFleet({ tools: [tool], hooks: [hook] });
    const { callId, result } = pending(await session.submit(tool, { text: 'x' }));
    await began.promise;
    expect((await session.cancel(callId)).settlement).toBe('too-late');
    expect((await result).output?.content).toBe('card ****');
  });

  test.each([
    ['hides a part of it', 'card ****'],
    ['fails', undefined],
  ])('the audit trail has no more of a result than its caller, behind a hook that %s', async (does, kept) => {
    const tool = scripted(() => 'card 4711');
    const hook: Hook = {
      name: 'cards',
      onFailure: 'closed',
      afterAttempt: () => {
        if (does === 'fails') throw new Error('no');
        return { result: { output: 'card ****' } };
      },
    };
    const { session, audited } = await startFleet({ tools: [tool], hooks: [hook] });
    await session.call(tool, { text: 'x' });
    const attempts = audited.flatMap((event) => (event.type === 'attempt' ? [[event.status, event.result]] : []));
    expect(attempts).toEqual([['success', kept]]);
  });

  test('a hook that fails after the attempt, closed, does not say that nothing happened', async () => {
    const tool = scripted(() => 1);
    const hook: Hook = {
      name: 'audit',
      onFailure: 'closed',
      afterAttempt: () => {
        throw new Error('disk full');
      },
    };
    const { session, pawl } = await startFleet({ tools: [tool], hooks: [hook] });
    const result = await session.call(tool, { text: 'x' }, { idempotencyKey: 'k' });
    expect(result.error).toMatchObject({ code: 'HOOK_FAILED', message: expect.stringContaining('disk full') });
    expect((await pawl.read(result.callId ?? ''))?.attempts).toHaveLength(1);
  });

  test('a hook that withholds a result does not deny that the call ran', async () => {
    const paid = defineTool({ ...OTHER, name: 'pay', effects: 'once', run: () => ({ output: 'paid' }) });
    const read = defineTool({
      ...OTHER,
      name: 'look',
      tier: 'read-only',
      effects: 'none',
      run: () => ({ output: 'seen' }),
    });
    const hook: Hook = {
      name: 'guard',
      onFailure: 'closed',
      afterCall: () => {
        throw new Error('disk full');
      },
    };
    const { session, pawl } = await startFleet({ tools: [paid, read], hooks: [hook] });
    const { callId = '', error, attempts } = await session.call(paid, {});
    expect(error).toMatchObject({ code: 'HOOK_FAILED', retriable: false, mayHaveHappened: true });
    expect(error?.message).toContain(`The call ran (call ${callId}); a hook withholds its result: `);
    expect(attempts).toBe(1);
    expect((await pawl.read(callId))?.state).toBe('done');
    const seen = (await session.call(read, {})).error;
    expect(seen?.message).toContain('The call ran');
    expect(seen).not.toHaveProperty('mayHaveHappened');
  });

  test.each(['afterCall', 'onShortCircuit'] as const)(
    'a caller whose %s hook fails closed gets an envelope, like for every ending',
    async (kind) => {
      const tool = scripted(() => 1);
      const hook: Hook = {
        name: 'audit',
        onFailure: 'closed',
        [kind]: () => {
          throw new Error('disk full');
        },
      };
      const { session } = await startFleet({ tools: [tool], hooks: [hook] });
      await session.call(tool, { text: 'x' }, { idempotencyKey: 'k' });
      const replayed = await session.call(tool, { text: 'x' }, { idempotencyKey: 'k' });
      expect(replayed).toMatchObject({
        status: 'error',
        fromCache: true,
        attempts: 1,
        error: { code: 'HOOK_FAILED', message: expect.stringContaining('disk full') },
      });
      expect(replayed).not.toHaveProperty('output');
    },
  );
});
