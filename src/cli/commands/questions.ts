/** `pawl questions`: questions of tools to people, and their answers. */
import type { Reply } from '../../producer/approvals/questions.ts';
import type { QuestionRecord } from '../../shared/store/approvals/questions.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { type CliContext, operatorName, pawlCommand, printList, printResult } from '../context.ts';
import { signingCommand } from '../doctor/signing-keys.ts';
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

export const listQuestions = pawlCommand(async (context, pawl, options: { readonly limit: number }) => {
  const questions = await pawl.questions.list(options.limit);
  printList(context, { questions }, { rows: questions, columns: COLUMNS, none: 'there are no questions' });
});

export function answerQuestion(context: CliContext, id: string, answer: string): Promise<number> {
  return reply(context, id, { answer });
}

export function dismissQuestion(context: CliContext, id: string): Promise<number> {
  return reply(context, id, { dismiss: true });
}

const reply = signingCommand(async (context, pawl, id: string, answer: Reply) => {
  const by = operatorName();
  await pawl.questions.reply(id, answer, by);
  printResult(context, { id, ...answer, by }, 'answer' in answer ? 'answered' : 'dismissed');
});

function answersText({ options = [], freeText }: QuestionRecord): string {
  const values = options.map(({ value }) => value);
  return startOf([...values, ...(freeText ? ['any text'] : [])].join(', '), 80);
}
