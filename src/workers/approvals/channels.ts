/**
 * The channels of a worker. They deliver the messages of a session's tools to people, through the nearest session with a channel, when
 * the channel's policy lets this session send. They announce approvals in the same way.
 */

import { type ApprovalRoute, digestOf } from '../../shared/approvals/approval.ts';
import { approvalButtons } from '../../shared/approvals/webhook-button.ts';
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { evaluate } from '../../shared/policy/policy.ts';
import type { Ruling } from '../../shared/policy/policy-request.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { Signatures } from '../../shared/signing/signatures.ts';
import type { ApprovalRecord } from '../../shared/store/approvals/approvals.ts';
import type { Questions } from '../../shared/store/approvals/questions.ts';
import type { Messages } from '../../shared/store/sessions/messages.ts';
import { routeOf } from '../../shared/store/sessions/sessions.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { Answer, CapabilityOwner, Channel, ChannelMessage, Channels, Question } from '../../shared/tools/tool.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { escapeInvisible, formatForDisplay } from '../../shared/util/text/visible-text.ts';
import { ElicitationState } from './questions.ts';
import { WebhookPauses } from './webhook-backoff.ts';

export interface WorkerChannelsDeps {
  readonly settings: Settings;
  readonly signatures: Signatures;
  readonly log: Logger;
  readonly messages: Messages;
  readonly questions: Questions;
  readonly audit: RecordAudit;
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  /** Redis' clock. */
  now(): Promise<number>;
}

const POST_TIMEOUT_MS = 5_000;
/** Characters of one section of a message: Slack refuses longer ones. */
const MAX_SECTION = 3_000;
/** The limits of the text around the parameters, and of one text of a caller. */
const MAX_NOTE = 200;
const MAX_LINE = 300;

export class WorkerChannels implements Channels {
  readonly #parts: WorkerChannelsDeps;
  readonly #asking: ElicitationState;
  readonly #pauses = new WebhookPauses();

  constructor(parts: WorkerChannelsDeps) {
    this.#parts = parts;
    this.#asking = new ElicitationState(parts.questions, parts.audit);
  }

  /** A question has ended, here or elsewhere. */
  heard(questionId: string): void {
    this.#asking.heard(questionId);
  }

  async open(owner: CapabilityOwner, signal?: AbortSignal): Promise<Channel | undefined> {
    const session = await this.#parts.sessionOf(owner.sessionKey);
    if (session === undefined) return undefined;
    const route = await routeOf(session, (key) => this.#parts.sessionOf(key));
    if (route === undefined) return undefined;
    const { kind } = route.channel;
    const send: Channel['send'] = (message) => this.#send(route, session, owner, message);
    // A webhook is one way.
    if (kind === 'webhook') return { kind, send };
    let asked = 0;
    const ask = (question: Question) => {
      asked += 1;
      return this.#ask({ route, session, owner, question, number: asked, signal });
    };
    return { kind, send, ask };
  }

  async #ask(asked: {
    readonly route: ApprovalRoute;
    readonly session: SessionRecord;
    readonly owner: CapabilityOwner;
    readonly question: Question;
    readonly number: number;
    readonly signal: AbortSignal | undefined;
  }): Promise<Answer> {
    const { route, session, owner, question, number, signal } = asked;
    this.#checkMay('ask', route, session);
    const { text, options, freeText = options === undefined, timeoutMs } = question;
    const { callId, actorId, agentId, tenantId } = owner;
    const request = {
      text,
      freeText,
      callId,
      actorId,
      ...(session.actorId === actorId ? {} : { sessionActorId: session.actorId }),
      session: session.sessionKey,
      shownIn: route.sessionKey,
      channel: route.channel.kind,
      ...(options === undefined ? {} : { options }),
      ...(agentId === undefined ? {} : { agentId }),
      ...(tenantId === undefined ? {} : { tenantId }),
    };
    return this.#asking.ask(request, { number, timeoutMs, signal });
  }

  /** Throws `PERMISSION_DENIED` when the policy of the channel does not let the session send, or ask. */
  #checkMay(what: 'send' | 'ask', route: ApprovalRoute, session: SessionRecord): void {
    const verdict = evaluate({
      tool: { name: what, namespace: 'channel', tier: 'workspace' },
      session: { ...session, state: undefined },
      policy: this.#parts.settings.policy,
      channel: route.channel.kind,
    });
    const refusing = verdict.rulings.find(refuses);
    if (refusing === undefined) return;
    const doing = what === 'send' ? 'send to its channel' : 'ask in its channel';
    throw new PawlError('PERMISSION_DENIED', `This session may not ${doing}: ${refusing.reason}.`);
  }

  async #send(
    route: ApprovalRoute,
    session: SessionRecord,
    owner: CapabilityOwner,
    message: string | ChannelMessage,
  ): Promise<void> {
    this.#checkMay('send', route, session);
    const { text, format } = typeof message === 'string' ? { text: message } : message;
    const said = { text: escapeInvisible(text), ...(format === undefined ? {} : { format }) };
    const { callId } = owner;
    if (route.channel.kind !== 'webhook') {
      const { messages, now } = this.#parts;
      return messages.add(route.sessionKey, { ...said, from: session.sessionKey, callId, sentAtMs: await now() });
    }
    await post(urlOf(route), { ...said, session: session.sessionKey, call: callId });
  }

  /** Tells people of an approval through its route; false when it should be tried again. */
  async announce(record: ApprovalRecord): Promise<boolean> {
    const { request } = record;
    if (request.route.channel.kind !== 'webhook') return true;
    const url = urlOf(request.route);
    if (!this.#pauses.mayAsk(url, POST_TIMEOUT_MS)) return false;
    const text = announcement(record);
    const buttons = approvalButtons(request, this.#parts.signatures);
    const message = {
      text,
      blocks: [
        { type: 'section', text: { type: 'mrkdwn', text } },
        ...(buttons.length === 0 ? [] : [{ type: 'actions', block_id: 'pawl-approval', elements: buttons }]),
      ],
      approval: { id: request.id, callId: request.callId, digest: digestOf(request), expiresAtMs: request.expiresAtMs },
    };
    try {
      await post(url, message);
      this.#pauses.took(url);
      return true;
    } catch {
      this.#pauses.failed(url);
      this.#parts.log.warn({ event: 'channel_down', approvalId: request.id }, 'an approval could not be announced yet');
      return false;
    }
  }
}

/** No approval is requested in the middle of a call. What holds for all tools of a layer or a tier was decided before the call. */
function refuses({ decision, rule }: Ruling): boolean {
  return decision === 'deny' || (decision === 'ask' && rule.includes('.tools.channel.'));
}

/** The text of an approval for people. It says when it leaves out a part of the parameters, because the decision covers that part as well. */
function announcement({ request, preview }: ApprovalRecord): string {
  const { tool, actorId, session, reason, justification } = request;
  const named = actorId === session.actorId ? '' : `, in the name of ${line(actorId)},`;
  const head = [
    `*${line(preview?.summary ?? tool.name)}*`,
    `${tool.namespace}.${tool.name} ${tool.version}, asked by ${line(session.actorId)}${named} in ${line(session.key)}`,
    `${line(reason)}${justification === undefined ? '' : `; why: ${line(justification)}`}`,
  ].join('\n');
  const params = inert(formatForDisplay(request.params));
  const shown = startOf(params, Math.max(0, MAX_SECTION - MAX_NOTE - head.length));
  const left = params.length - shown.length;
  const note = `*${left} more characters of the parameters are not shown here: look at the whole approval before you decide.*`;
  return `${head}\n\`\`\`${shown}\`\`\`${left === 0 ? '' : `\n${note}`}`;
}

/** Text of a caller in one line of ours. */
function line(text: string): string {
  const whole = inert(text.replaceAll(/\s+/g, ' '));
  return whole.length <= MAX_LINE ? whole : `${startOf(whole, MAX_LINE)}…`;
}

/** The text as Slack shows it: without links and mentions, and unable to end the block around it. */
function inert(text: string): string {
  const entities: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };
  return escapeInvisible(text)
    .replaceAll(/[&<>]/g, (character) => entities[character] ?? '')
    .replaceAll('```', '\\u{60}'.repeat(3));
}

function urlOf({ channel }: ApprovalRoute): string {
  const { url } = channel;
  return typeof url === 'string' ? url : '';
}

/** Throws what says whether the message may have been taken all the same: who answers late, or with a failure, may show it. */
async function post(url: string, body: object): Promise<void> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    redirect: 'error',
    signal: AbortSignal.timeout(POST_TIMEOUT_MS),
  }).catch((cause: unknown) => {
    throw new Error('The channel did not take the message', { cause });
  });
  await response.body?.cancel().catch(() => {});
  if (response.ok) return;
  const { status, headers } = response;
  throw Object.assign(new Error(`The channel did not take the message: it answered ${status}`), { status, headers });
}
