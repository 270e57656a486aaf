/** `pawl questions`: questions of tools to people, and their answers. */
import type { Reply } from '../../producer/approvals/questions.ts';
import type { QuestionRecord } from '../../shared/store/approvals/questions.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { type CliContext, operatorName, printList, printResult, withPawl } from '../context.ts';
import { requireTrustedKeys } from '../doctor/signing-keys.ts';
import { type Column, duration } from '../print.ts';

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
  { title: 'ANSWERS', text: answersText },
];

export async function listQuestions(context: CliContext, options: { readonly limit: number }): Promise<number> {
  return withPawl(context, async (pawl) => {
    const questions = await pawl.questions.list(options.limit);
    printList(context, { questions }, { rows: questions, columns: COLUMNS, none: 'there are no questions' });
  });
}

export function answerQuestion(context: CliContext, id: string, answer: string): Promise<number> {
  return reply(context, id, { answer });
}

export function dismissQuestion(context: CliContext, id: string): Promise<number> {
  return reply(context, id, { dismiss: true });
}

async function reply(context: CliContext, id: string, answer: Reply): Promise<number> {
  return withPawl(context, async (pawl) => {
    await requireTrustedKeys(context, pawl);
    const by = operatorName();
    await pawl.questions.reply(id, answer, by);
    printResult(context, { id, ...answer, by }, 'answer' in answer ? 'answered' : 'dismissed');
  });
}

function answersText({ options = [], freeText }: QuestionRecord): string {
  const values = options.map(({ value }) => value);
  return startOf([...values, ...(freeText ? ['any text'] : [])].join(', '), 80);
}
