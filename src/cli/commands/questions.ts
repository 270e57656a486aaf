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
  { title: 'ANSWERS', text: answersText },
];

interface JsonOption {
  readonly json?: boolean;
}

export async function listQuestions(
  context: CliContext,
  options: { readonly limit: number; readonly json?: boolean },
): Promise<number> {
  return withPawl(context, async (pawl) => {
    const questions = await pawl.questions.list(options.limit);
    if (options.json === true) print(context, prettyJson({ questions }));
    else if (questions.length > 0) print(context, table(questions, COLUMNS));
    else say(context, 'there are no questions');
  });
}

export function answerQuestion(context: CliContext, id: string, answer: string, options: JsonOption): Promise<number> {
  return reply(context, id, { answer }, options);
}

export function dismissQuestion(context: CliContext, id: string, options: JsonOption): Promise<number> {
  return reply(context, id, { dismiss: true }, options);
}

async function reply(context: CliContext, id: string, answer: Reply, { json }: JsonOption): Promise<number> {
  return withPawl(context, async (pawl) => {
    await requireTrustedKeys(context, pawl);
    const by = operatorName();
    await pawl.questions.reply(id, answer, by);
    if (json === true) print(context, prettyJson({ id, ...answer, by }));
    else print(context, 'answer' in answer ? 'answered' : 'dismissed');
  });
}

function answersText({ options = [], freeText }: QuestionRecord): string {
  const values = options.map(({ value }) => value);
  return startOf([...values, ...(freeText ? ['any text'] : [])].join(', '), 80);
}
