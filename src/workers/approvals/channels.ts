/**
 * The channels of a worker. They deliver the messages of a session's tools to people, through the nearest session with a channel, when
 * the channel's policy lets this session send. They announce approvals in the same way.
 */
import type { ApprovalRoute } from '../../shared/approvals/approval.ts';
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { evaluate } from '../../shared/policy/policy.ts';
import type { Ruling } from '../../shared/policy/policy-request.ts';
import { channelTarget, type RemoteChannel } from '../../shared/sessions/channel-kinds.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { Signatures } from '../../shared/signing/signatures.ts';
import type { ApprovalRecord } from '../../shared/store/approvals/approvals.ts';
import type { Questions } from '../../shared/store/approvals/questions.ts';
import type { Messages } from '../../shared/store/sessions/messages.ts';
import { routeOf } from '../../shared/store/sessions/sessions.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type {
  Answer,
  CapabilityOwner,
  Channel,
  ChannelMessage,
  Channels,
  Question,
} from '../../shared/tools/capabilities.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { escapeInvisible } from '../../shared/util/text/visible-text.ts';
import { ChannelBackoff } from './channel-backoff.ts';
import { ElicitationState } from './questions.ts';
import { webhook } from './webhook-channel.ts';

interface WorkerChannelsDeps {
  readonly settings: Settings;
  readonly signatures: Signatures;
  readonly log: Logger;
  readonly messages: Messages;
  readonly questions: Questions;
  readonly audit: RecordAudit;
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  /** The channel of a session that has none; undefined where no front door offers one. */
  defaultChannel?(session: SessionRecord): Promise<SessionRecord['channel']>;
  /** Redis' clock. */
  now(): Promise<number>;
}

/** The delivery of one kind of remote channel. It throws when the message may not have been accepted. */
interface Delivery {
  readonly timeoutMs: number;
  send(target: string, message: ChannelMessage & { readonly session: string; readonly call: string }): Promise<void>;
  announce(target: string, record: ApprovalRecord, signatures: Signatures): Promise<void>;
}

const REMOTE: Readonly<Record<RemoteChannel, Delivery>> = { webhook };

export class WorkerChannels implements Channels {
  readonly #deps: WorkerChannelsDeps;
  readonly #elicitations: ElicitationState;
  readonly #backoff = new ChannelBackoff();

  constructor(deps: WorkerChannelsDeps) {
    this.#deps = deps;
    this.#elicitations = new ElicitationState(deps.questions, deps.audit);
  }

  /** Called when a question has ended, in any process. */
  onQuestionEnded(questionId: string): void {
    this.#elicitations.onEnded(questionId);
  }

  async open(owner: CapabilityOwner, signal?: AbortSignal): Promise<Channel | undefined> {
    const { sessionOf, defaultChannel } = this.#deps;
    const session = await sessionOf(owner.sessionKey);
    if (session === undefined) return undefined;
    const route = await routeOf(session, sessionOf, defaultChannel);
    if (route === undefined) return undefined;
    const { kind } = route.channel;
    const send: Channel['send'] = (message) => this.#send(route, session, owner, message);
    // A remote channel is one way.
    if (channelTarget(route.channel) !== undefined) return { kind, send };
    let askedCount = 0;
    const ask = (question: Question) => {
      askedCount += 1;
      return this.#ask({ route, session, owner, question, number: askedCount, signal });
    };
    return { kind, send, ask };
  }

  async #ask(elicitation: {
    readonly route: ApprovalRoute;
    readonly session: SessionRecord;
    readonly owner: CapabilityOwner;
    readonly question: Question;
    readonly number: number;
    readonly signal: AbortSignal | undefined;
  }): Promise<Answer> {
    const { route, session, owner, question, number, signal } = elicitation;
    this.#requirePermission('ask', route, session);
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
      ...defined({ options, agentId, tenantId }),
    };
    return this.#elicitations.ask(request, { number, timeoutMs, signal });
  }

  /** Throws `PERMISSION_DENIED` when policy denies the session this action on the channel. */
  #requirePermission(action: 'send' | 'ask', route: ApprovalRoute, session: SessionRecord): void {
    const result = evaluate({
      tool: { name: action, namespace: 'channel', tier: 'workspace' },
      session: { ...session, state: undefined },
      policy: this.#deps.settings.policy,
      channel: route.channel.kind,
    });
    const refusal = result.rulings.find(isRefusal);
    if (refusal === undefined) return;
    const phrase = action === 'send' ? 'send to its channel' : 'ask in its channel';
    throw new PawlError('PERMISSION_DENIED', `This session may not ${phrase}: ${refusal.reason}.`);
  }

  async #send(
    route: ApprovalRoute,
    session: SessionRecord,
    owner: CapabilityOwner,
    message: string | ChannelMessage,
  ): Promise<void> {
    this.#requirePermission('send', route, session);
    const { text, format } = typeof message === 'string' ? { text: message } : message;
    const escaped = { text: escapeInvisible(text), ...(format !== undefined && { format }) };
    const { callId } = owner;
    const target = channelTarget(route.channel);
    if (target !== undefined)
      return REMOTE[target.kind].send(target.value, { ...escaped, session: session.sessionKey, call: callId });
    const { messages, now } = this.#deps;
    return messages.add(route.sessionKey, { ...escaped, from: session.sessionKey, callId, sentAtMs: await now() });
  }

  /** Announces an approval through its route. False when it should be tried again. */
  async announce(record: ApprovalRecord): Promise<boolean> {
    const { request } = record;
    const target = channelTarget(request.route.channel);
    if (target === undefined) return true;
    const { kind, value } = target;
    if (!this.#backoff.mayTry(value, REMOTE[kind].timeoutMs)) return false;
    try {
      await REMOTE[kind].announce(value, record, this.#deps.signatures);
      this.#backoff.succeeded(value);
      return true;
    } catch {
      this.#backoff.failed(value);
      this.#deps.log.warn({ event: 'channel_down', approvalId: request.id }, 'an approval could not be announced yet');
      return false;
    }
  }
}

/** No approval can be requested in the middle of a call. Rules for all tools of a layer or a tier were applied before the call. */
function isRefusal({ decision, rule }: Ruling): boolean {
  return decision === 'deny' || (decision === 'ask' && rule.includes('.tools.channel.'));
}
