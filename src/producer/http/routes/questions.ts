/** `/v1/questions`: questions of tools to people, and their answers. */
import { z } from 'zod';
import { PawlError } from '../../../shared/errors/failure.ts';
import type { QuestionRecord } from '../../../shared/store/approvals/questions.ts';
import type { Pawl } from '../../client.ts';
import { type Caller, seesTenant } from '../core/access.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { callerName } from './approvals.ts';

const replySchema = z.union(
  [z.strictObject({ answer: z.string().min(1).max(4_000) }), z.strictObject({ dismiss: z.literal(true) })],
  { error: 'must be { "answer": TEXT } or { "dismiss": true }' },
);

export const questionRoutes: readonly Route[] = [
  route('get /v1/questions', {
    operationId: 'listQuestions',
    permission: 'decide',
    summary: 'Questions of tools that wait for a person, the most urgent first.',
    query: z.strictObject({ limit: queryNumber({ max: 200, fallback: 100, unit: 'questions' }) }),
    responses: { 200: ['Questions', 'QuestionList'] },
    answer: async ({ pawl, query, caller }) => ({
      questions: await pawl.questions.list(query.limit, ({ tenantId }) => seesTenant(caller, tenantId)),
    }),
  }),
  route('post /v1/questions/{id}', {
    operationId: 'answerQuestion',
    permission: 'decide',
    summary: 'Answers a question, once, or dismisses it.',
    body: replySchema,
    responses: { 200: ['The question, with its answer', 'AnsweredQuestion'] },
    async answer({ pawl, path, body, caller }) {
      const record = await questionFor(pawl, caller, path.id);
      const by = callerName(caller);
      await pawl.questions.reply(record.id, body, by);
      return { ...record, ...body, by };
    },
  }),
];

async function questionFor(pawl: Pawl, caller: Caller, id: string): Promise<QuestionRecord> {
  const record = await pawl.questions.show(id);
  if (!seesTenant(caller, record.tenantId)) throw new PawlError('NOT_FOUND');
  return record;
}
