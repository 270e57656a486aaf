import { describe, expect, test } from 'vitest';
import type { Answer, Channel, ChannelMessage, Question } from '../../../src/shared/tools/capabilities.ts';
import { message } from '../../../src/workers/tools/message.ts';
import { requestUserInput } from '../../../src/workers/tools/request-user-input.ts';
import { updatePlan } from '../../../src/workers/tools/update-plan.ts';
import { testContext } from '../../helpers/context.ts';

function channel(answer?: Answer) {
  const sent: (string | ChannelMessage)[] = [];
  const asked: Question[] = [];
  const handle: Channel = {
    kind: 'console',
    send: async (text) => void sent.push(text),
    ...(answer === undefined
      ? {}
      : {
          ask: async (question: Question) => {
            asked.push(question);
            return answer;
          },
        }),
  };
  return { sent, asked, handle };
}

describe('message (A16, A19)', () => {
  test.each(['main', 'branch'] as const)('a %s session sends through its channel (A17)', async (kind) => {
    const { sent, handle } = channel();
    const result = await message.run(
      message.parse({ text: 'Done.\nAll of it.' }),
      testContext({ kind, channel: handle }),
    );
    expect(sent).toEqual([{ text: 'Done.\nAll of it.', format: 'text' }]);
    expect(result).toEqual({
      output: { sent: true, channel: 'console' },
      display: 'Sent to the console channel: Done.…',
    });
  });

  test('a worker session, and one without a channel, sends nothing (A9, A10, A17)', async () => {
    const { sent, handle } = channel();
    const run = (ctx: Parameters<typeof message.run>[1]) => message.run(message.parse({ text: 'x' }), ctx);
    await expect(run(testContext({ kind: 'worker', channel: handle }))).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
    });
    await expect(run(testContext())).rejects.toThrow('no channel to people');
    expect(sent).toEqual([]);
  });
});

describe('request_user_input (C19)', () => {
  const options = [{ label: 'Yes', value: 'yes', description: 'goes on' }, { label: 'No' }];

  test('asks with options and gives the answer', async () => {
    const { asked, handle } = channel({ state: 'answered', value: 'yes', by: 'ada' });
    const result = await requestUserInput.run(
      requestUserInput.parse({ question: 'Go on?', options, timeout_ms: 5_000 }),
      testContext({ channel: handle }),
    );
    expect(asked).toEqual([
      {
        text: 'Go on?',
        timeoutMs: 5_000,
        options: [
          { label: 'Yes', value: 'yes', description: 'goes on' },
          { label: 'No', value: 'No' },
        ],
      },
    ]);
    expect(result).toMatchObject({ output: { state: 'answered', answer: 'yes', by: 'ada' }, display: 'Go on? yes' });
  });

  test.each(['expired', 'dismissed'] as const)('no answer (%s) is a soft failure', async (state) => {
    const { handle } = channel({ state });
    const result = await requestUserInput.run(
      requestUserInput.parse({ question: 'Go on?' }),
      testContext({ channel: handle }),
    );
    expect(result).toMatchObject({ output: { state }, success: false });
  });

  test('a channel that cannot return answers is an error', async () => {
    const { handle } = channel();
    await expect(
      requestUserInput.run(requestUserInput.parse({ question: 'Go on?' }), testContext({ channel: handle })),
    ).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });
});

test('update_plan gives the plan back and reports its progress to subscribers (C19)', async () => {
  const ctx = testContext({ kind: 'worker' });
  const plan = [
    { step: 'Read', status: 'completed' },
    { step: 'Write', status: 'in_progress' },
    { step: 'Test', status: 'pending' },
  ];
  const result = await updatePlan.run(updatePlan.parse({ plan, explanation: 'Because.' }), ctx);
  expect(result).toEqual({
    output: { steps: 3, completed: 1, current: 'Write' },
    display: 'Because.\n[x] Read\n[~] Write\n[ ] Test',
  });
  expect(ctx.progressed).toEqual([{ progress: 1, total: 3, message: 'Write' }]);
  const twice = plan.map(({ step }) => ({ step, status: 'in_progress' }));
  expect(() => updatePlan.run(updatePlan.parse({ plan: twice }), ctx)).toThrow(
    expect.objectContaining({ code: 'INVALID_PARAMS' }),
  );
});
