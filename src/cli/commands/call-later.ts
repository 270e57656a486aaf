/** `pawl call --after` and `--at`: the command submits the call, which starts later. */
import type { Submission } from '../../producer/calls/submission.ts';
import type { Pawl } from '../../producer/client.ts';
import type { Session } from '../../producer/sessions/session.ts';
import type { ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { StartOptions } from '../../shared/calls/start-time.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { type CliContext, print, say } from '../context.ts';
import { moment, prettyJson } from '../print.ts';

export interface LaterOptions {
  /** Milliseconds. */
  readonly after?: number;
  /** ISO 8601. */
  readonly at?: string;
}

/** Giving both is refused when the call is submitted. */
export function startOptions({ after, at }: LaterOptions): StartOptions {
  return defined({ startAfterMs: after, startAt: at });
}

/** Submits the call, and reports its start. Returns its result if the call has ended already, or was refused. */
export async function submitLater(
  context: CliContext,
  pawl: Pawl,
  session: Session,
  submit: () => Promise<Submission>,
): Promise<ToolResultEnvelope | undefined> {
  session.events.once('approval-requested', ({ approvalId }) =>
    say(context, `a person has to approve it: see 'pawl approvals show ${approvalId}'`),
  );
  const submission = await submit();
  if (submission.kind === 'answered') return submission.result;
  const { callId, requestId } = submission;
  const record = await pawl.read(callId);
  submission.stop();
  const startAtMs = record?.request.startAtMs;
  if (context.json)
    print(context, prettyJson(defined({ callId, requestId, state: record?.state, phase: record?.phase, startAtMs })));
  else context.out.write(`${callId}\n`);
  if (!context.json && startAtMs !== undefined)
    say(
      context,
      `starts at ${moment(startAtMs)}: follow it with 'pawl calls show ${callId}', end it with 'pawl calls cancel'`,
    );
  return undefined;
}
