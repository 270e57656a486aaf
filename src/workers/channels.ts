/**
 * The channels of a worker (A19): what a session's tools say to people, through the nearest session that has a channel, as far as
 * the channel's policy lets this session send. And the announcement of approvals, which takes the same way.
 */

import { type ApprovalRoute, digestOf } from '../shared/approval.ts';
import type { RecordAudit } from '../shared/audit.ts';
import type { Settings } from '../shared/config.ts';
import { PawlError } from '../shared/failure.ts';
import type { Logger } from '../shared/log.ts';
import { evaluate } from '../shared/policy.ts';
import type { Seals } from '../shared/seals.ts';
import type { SessionRecord } from '../shared/session.ts';
import { shownJson, shownText } from '../shared/shown.ts';
import type { ApprovalRecord } from '../shared/store/approvals.ts';
import type { Messages } from '../shared/store/messages.ts';
import type { Questions } from '../shared/store/questions.ts';
import { routeOf } from '../shared/store/sessions.ts';
import type { Answer, CapabilityOwner, Channel, ChannelMessage, Channels, Question } from '../shared/tool.ts';
import { approvalButtons } from '../shared/webhook.ts';
import { Asking } from './questions.ts';

export interface WorkerChannelsParts {
  readonly settings: Settings;
  readonly seals: Seals;
  readonly log: Logger;
  readonly messages: Messages;
  readonly questions: Questions;
  readonly audit: RecordAudit;
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  /** Redis' clock. */
  now(): Promise<number>;
}

const POST_TIMEOUT_MS = 5_000;

export class WorkerChannels implements Channels {
  readonly #parts: WorkerChannelsParts;
  readonly #asking: Asking;

  constructor(parts: WorkerChannelsParts) {
    this.#parts = parts;
    this.#asking = new Asking(parts.questions, parts.audit);
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
      session: { ...session, state: 'open' },
      policy: this.#parts.settings.policy,
      channel: route.channel.kind,
    });
    if (verdict.decision === 'allow') return;
    const doing = what === 'send' ? 'send to its channel' : 'ask in its channel';
    throw new PawlError('PERMISSION_DENIED', `This session may not ${doing}: ${verdict.reason}.`);
  }

  async #send(
    route: ApprovalRoute,
    session: SessionRecord,
    owner: CapabilityOwner,
    message: string | ChannelMessage,
  ): Promise<void> {
    this.#checkMay('send', route, session);
    const text = shownText(typeof message === 'string' ? message : message.text);
    const { callId } = owner;
    if (route.channel.kind !== 'webhook') {
      const { messages, now } = this.#parts;
      return messages.add(route.sessionKey, { text, from: session.sessionKey, callId, sentAtMs: await now() });
    }
    const sent = await post(urlOf(route), { text, session: session.sessionKey, call: callId });
    if (!sent) throw new PawlError('UNREACHABLE', 'The channel did not take the message.');
  }

  /** Tells people of an approval through its route; false when it should be tried again. */
  async announce(record: ApprovalRecord): Promise<boolean> {
    const { request, preview } = record;
    if (request.route.channel.kind !== 'webhook') return true;
    const { tool, actorId, session, reason, justification } = request;
    const lines = [
      `*${shownText(preview?.summary ?? tool.name)}*`,
      `${tool.namespace}.${tool.name} ${tool.version}, asked by ${shownText(actorId)} in ${shownText(session.key)}`,
      `${reason}${justification === undefined ? '' : `; why: ${shownText(justification)}`}`,
      `\`\`\`${shownText(shownJson(request.params)).slice(0, 2_000)}\`\`\``,
    ];
    const text = lines.join('\n');
    const buttons = approvalButtons(request, this.#parts.seals);
    const sent = await post(urlOf(request.route), {
      text,
      blocks: [
        { type: 'section', text: { type: 'mrkdwn', text } },
        ...(buttons.length === 0 ? [] : [{ type: 'actions', block_id: 'pawl-approval', elements: buttons }]),
      ],
      approval: { id: request.id, callId: request.callId, digest: digestOf(request), expiresAtMs: request.expiresAtMs },
    });
    if (!sent)
      this.#parts.log.warn({ event: 'channel_down', approvalId: request.id }, 'an approval could not be announced yet');
    return sent;
  }
}

function urlOf({ channel }: ApprovalRoute): string {
  const { url } = channel;
  return typeof url === 'string' ? url : '';
}

async function post(url: string, body: object): Promise<boolean> {
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      redirect: 'error',
      signal: AbortSignal.timeout(POST_TIMEOUT_MS),
    });
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false;
  }
}
