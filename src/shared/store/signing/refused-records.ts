/**
 * The kinds of signed records, and the audit event for a record of each kind that is refused. A signature is bound to the kind and the
 * ID of its record:
 *
 * | kind          | ID                                                                                                    |
 * |---------------|-------------------------------------------------------------------------------------------------------|
 * | request       | call ID, generation (the time from which the signature counts), resolution                            |
 * | outcome       | call ID, final state                                                                                  |
 * | outcome-parts | the same; the text is the reference to a large outcome, with the digest of every part                 |
 * | approval      | approval ID, digest of all that a decision is about                                                   |
 * | preview       | approval ID                                                                                           |
 * | decision      | approval ID; the text says what the decision covers                                                   |
 * | session       | session key                                                                                           |
 * | grant         | session key of a standing approval                                                                    |
 * | spec          | qualified name of a declared tool, or `skill NAME`; the revision is part of the text                  |
 * | schedule      | ID of the schedule                                                                                    |
 * | schedule-progress | ID of the schedule                                                                                |
 * | group         | ID of the batch or plan, field of its record                                                          |
 * | tool          | field of a published tool; a tier with keys of its own signs with those alone                         |
 * | message       | the receiver, or the subject                                                                          |
 * | question      | question ID                                                                                           |
 * | answer        | question ID                                                                                           |
 * | audit         | sequence number, signature of the record before                                                       |
 * | circuit       | key of a circuit that an operator forced open; the text is the reason                                 |
 * | switch        | the tool that an operator switched, or `*`                                                            |
 * | redrive       | redrive ID                                                                                            |
 * | redrive-calls | redrive ID, position of the batch                                                                     |
 * | token         | none: the text of an approval button                                                                  |
 */
import { callOf } from '../../approvals/approval.ts';
import type { AuditEvent } from '../../audit/audit-event.ts';
import type { RefusedRecord } from '../../signing/signatures.ts';

type RefusedEvent = Extract<AuditEvent, { type: 'refused' }>;

interface Description extends Omit<RefusedEvent, 'type' | 'reason'> {
  readonly subject: string;
}

const DESCRIPTIONS: Readonly<Record<string, (id: string) => Description>> = {
  request: (callId) => ({ what: 'request', callId, subject: 'the request' }),
  outcome: (callId) => ({ what: 'outcome', callId, subject: 'the outcome' }),
  'outcome-parts': (callId) => ({ what: 'outcome', callId, subject: 'the outcome' }),
  approval: (id) => ({ what: 'approval', callId: callOf(id), subject: 'the approval' }),
  preview: (id) => ({ what: 'approval', subject: `the preview of ${id}` }),
  decision: (id) => ({ what: 'decision', callId: callOf(id), subject: 'the decision' }),
  session: (sessionKey) => ({ what: 'session', sessionKey, subject: 'the session' }),
  grant: (sessionKey) => ({ what: 'grant', sessionKey, subject: 'the grant' }),
  spec: (tool) => ({ what: 'spec', subject: `the registry's record of ${tool}` }),
  schedule: (id) => ({ what: 'schedule', subject: `the schedule ${id}` }),
  'schedule-progress': (id) => ({ what: 'schedule', subject: `the progress of the schedule ${id}` }),
  group: (id) => ({ what: 'group', subject: `a part of the batch or plan ${id}` }),
  tool: (field) => ({ what: 'tool', subject: `the published tool ${field}` }),
  circuit: (key) => ({ what: 'message', subject: `the reason of the circuit ${key}` }),
  switch: (tool) => ({ what: 'message', subject: `the switch of ${tool}` }),
  question: (id) => ({ what: 'question', subject: `the question ${id}` }),
  answer: (id) => ({ what: 'answer', subject: `the answer to ${id}` }),
};

function describeMessage(about: string): Description {
  return { what: 'message', subject: `a message about ${about}` };
}

export function refusedEvent({ kind, id, reason }: RefusedRecord): RefusedEvent {
  const describe = DESCRIPTIONS[kind] ?? describeMessage;
  const { subject, ...fields } = describe(id[0] ?? '');
  return { type: 'refused', ...fields, reason: reason ?? `${subject} is not signed by this fleet` };
}
