/** `pawl questions`: questions of tools to people, and their answers. */
import type { Reply } from '../../producer/approvals/questions.ts';
import type { QuestionRecord } from '../../shared/store/approvals/questions.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { type CliContext, operatorName, print, say, withPawl } from '../context.ts';
import { requireTrustedKeys } from '../doctor/signing-keys.ts';
import { type Column, duration, prettyJson, table } from '../print.ts';

const COLUMNS: readonly Column<QuestionRecord>[] = [
  { title: 'ID', text: ({ id }) => id },
  {
    title: 'ASKED BY',
    text: ({ actorId, sessionActorId }) =>
      sessionActorId === undefined ? actorId : `${sessionActorId}, in the name of ${actorId}`,
  },
  { title: 'SESSION', text: ({ session }) => session },
  { title: 'LEFT', text: ({ expiresAtMs }) => duration(Math.max(0, expiresAtMs - Date.now())) },
  { title: 'QUESTION', text: ({ text }) => startOf(text, 120) },
  { title: 'ANSWERS', text: answers },
];

export async function listQuestions(
  context: CliContext,
  options: { readonly limit: number; readonly json?: boolean },
): Promise<number> {
  return withPawl(context, async (pawl) => {
    const questions = await pawl.questions.list(options.limit);
    if (options.json === true) print(context, prettyJson({ questions }));
    else if (questions.length > 0) print(context, table(questions, COLUMNS));
    else say(context, 'nothing is asked');
  });
}

export async function replyToQuestion(
  context: CliContext,
  id: string,
  reply: Reply,
  options: { readonly json?: boolean },
): Promise<number> {
  return withPawl(context, async (pawl) => {
    await requireTrustedKeys(context, pawl);
    const by = operatorName();
    await pawl.questions.reply(id, reply, by);
    if (options.json === true) print(context, prettyJson({ id, ...reply, by }));
    else print(context, 'answer' in reply ? 'answered' : 'dismissed');
  });
}

function answers({ options = [], freeText }: QuestionRecord): string {
  const values = options.map(({ value }) => value);
  return startOf([...values, ...(freeText ? ['any text'] : [])].join(', '), 80);
}
