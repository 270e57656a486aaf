/**
 * `POST /v1/approvals/actions`: a person pressed a button of a webhook channel. The body is Slack's interactive payload (a form with
 * the field `payload`) or `{value, by?}`. The button's value is signed, so the request needs no token.
 */
import express, { type Express } from 'express';
import { z } from 'zod';
import { readButton } from '../../../shared/approvals/webhook-button.ts';
import { PawlError } from '../../../shared/errors/failure.ts';
import { parseJson } from '../../../shared/util/json/json-types.ts';
import { escapeLine } from '../../../shared/util/text/visible-text.ts';
import type { Pawl } from '../../client.ts';
import { jsonBody } from '../core/route.ts';

const pressedSchema = z.union([
  z.object({ value: z.string().max(4_096), by: z.string().max(128).optional() }),
  z
    .object({
      user: z
        .object({ username: z.string().optional(), name: z.string().optional(), id: z.string().optional() })
        .optional(),
      actions: z.array(z.object({ value: z.string().max(4_096) })).min(1),
    })
    .transform(({ user, actions: [action] }) => ({
      value: action?.value ?? '',
      by: user?.username ?? user?.name ?? user?.id,
    })),
]);

const BUTTON_PATH = '/v1/approvals/actions';

export function mountButtons(app: Express, pawl: Pawl): void {
  const limit = '64kb';
  app.post(
    BUTTON_PATH,
    ...jsonBody(limit),
    express.urlencoded({ extended: false, limit }),
    async (request, response) => {
      const body: unknown = request.body;
      const form = (body as { payload?: unknown } | undefined)?.payload;
      const pressed = pressedSchema.safeParse(typeof form === 'string' ? parseJson(form) : body);
      if (!pressed.success)
        throw new PawlError('CONTRACT_INVALID', 'The body is not the payload of a button.', {
          issues: [{ path: 'value', message: 'is missing' }],
        });
      const { value, by = 'somebody' } = pressed.data;
      const { signatures, ledger } = pawl.backend;
      const { approvalId, digest, decision } = readButton(value, signatures, await ledger.now());
      const decided = await pawl.approvals.decide(approvalId, { decision, digest, by: `webhook:${by}` });
      response.json({
        response_type: 'in_channel',
        replace_original: false,
        text: `${decided.record.state} by ${escapeLine(by)}`,
        state: decided.record.state,
      });
    },
  );
}
