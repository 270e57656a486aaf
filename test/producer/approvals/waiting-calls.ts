/** Calls that wait for a person. */
import { z } from 'zod';
import type { ApprovalListing } from '../../../src/producer/approvals/approvals.ts';
import type { Session } from '../../../src/producer/sessions/session.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { type Fleet, pending } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';

/** An elevated tool that counts, and shows a preview with characters that deceive. */
export function transfer() {
  const ran: unknown[] = [];
  const tool = defineTool({
    name: 'transfer',
    version: '1.0.0',
    description: 'Sends money.',
    tier: 'elevated',
    input: z.object({ to: z.string(), amount: z.number(), justification: z.string().optional() }),
    preview: ({ to, amount }) => ({ summary: `Send ${amount} to ${to}`, details: `to: ${to}` }),
    run: (params) => {
      ran.push(params);
      return { output: { sent: params.amount } };
    },
  });
  return { tool, ran };
}

export const KEYS = { signingKeys: [{ kid: 'k1', key: 'a key that nobody else has' }] };

export async function waiting(fleet: Fleet, count = 1): Promise<readonly ApprovalListing[]> {
  return eventually(
    async () => {
      const listed = await fleet.pawl.approvals.list({ state: 'pending' });
      return listed.length === count && listed;
    },
    { what: `${count} pending approvals` },
  );
}

export async function ask(fleet: Fleet, session: Session, params = { to: 'bob', amount: 5 }) {
  const submission = pending(await session.submit('transfer', params));
  const [listed] = await waiting(fleet);
  if (listed === undefined) throw new Error('no approval');
  const { record, digest } = listed;
  return { submission, record, digest, id: record.request.id };
}

export async function withChannel(fleet: Fleet): Promise<Session> {
  return fleet.pawl.openSession({ actorId: 'agent-7', channel: { kind: 'operator' } });
}
