/** The step that decides whether a session may make a call: it finds the session and the tool, asks policy, and checks the parameters. */
import { checkCompensationKey } from '../../shared/calls/compensation.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import { requirePermission } from '../../shared/policy/policy.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import { taintOf } from '../../shared/policy/taint.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { ResolvedTool, ToolCatalogue } from '../tools/tool-catalogue.ts';
import type { AuthorizedCall } from './checked-call.ts';
import { areValidNow, checkParams } from './params.ts';

/** The sessions that envelopes name. */
interface SessionLookup {
  /** Returns a cached session, without a round trip to Redis. Throws `SESSION_CLOSED`. */
  peekOf(envelope: ToolCallEnvelope): SessionRecord | undefined;
  /** Finds the session. Writes a lost one again as `opened`, and opens an unknown one. Throws `SESSION_CLOSED`. */
  resolve(envelope: ToolCallEnvelope, opened?: SessionRecord): Promise<SessionRecord>;
  /** Retains a session at least until `untilMs`. Absent where sessions do not expire. */
  keepUntil?(session: SessionRecord, untilMs: number): Promise<void>;
}

export interface AuthorizeDeps {
  readonly settings: Settings;
  readonly catalogue: Pick<ToolCatalogue, 'peek' | 'find'> & Partial<Pick<ToolCatalogue, 'toolPolicyFor'>>;
  readonly sessions: SessionLookup;
  /** Without it, no session reaches a person. */
  readonly approvals?: Pick<ApprovalService, 'routeOf'>;
}

export class CallAuthorizer {
  readonly #deps: AuthorizeDeps;

  constructor(deps: AuthorizeDeps) {
    this.#deps = deps;
  }

  /**
   * `isDraft`: the session was not opened yet. Throws `UNKNOWN_TOOL`, `SESSION_CLOSED`, `PERMISSION_DENIED`, `DEDUPE_REQUIRED`,
   * `INVALID_PARAMS` and `CONTRACT_INVALID`.
   */
  async authorize(envelope: ToolCallEnvelope, opened?: SessionRecord, isDraft = false): Promise<AuthorizedCall> {
    checkCompensationKey(envelope);
    const session = isDraft && opened ? opened : await this.#deps.sessions.resolve(envelope, opened);
    const tool = await this.#toolOf(envelope);
    const channel = await this.#channelOf(session);
    // Policy comes before the schema: a session that may not call the tool learns nothing about its parameters.
    const submittedResult = this.#requirePermission(envelope, tool, session, channel);
    const checked = await checkParams(envelope, tool);
    // Policy may depend on parameters, so it decides on those that run.
    const policyResult =
      checked === envelope ? submittedResult : this.#requirePermission(checked, tool, session, channel);
    return { envelope: checked, tool, session, policyResult, channel };
  }

  /**
   * The decision of policy on a call whose parameters are not known yet. Throws as `authorize` does, except for the parameters.
   */
  async permit(envelope: ToolCallEnvelope, session: SessionRecord, isDraft: boolean): Promise<PolicyResult> {
    const opened = isDraft ? session : await this.#deps.sessions.resolve(envelope, session);
    return this.#requirePermission(envelope, await this.#toolOf(envelope), opened, await this.#channelOf(opened));
  }

  async #toolOf({ toolNamespace, toolName }: ToolCallEnvelope): Promise<ResolvedTool> {
    const { catalogue } = this.#deps;
    return catalogue.peek(toolNamespace, toolName) ?? (await catalogue.find(toolNamespace, toolName));
  }

  /** Authorizes from cached records alone. Undefined when a round trip is needed, and when the call is refused. */
  authorizeNow(envelope: ToolCallEnvelope, tool: ResolvedTool): AuthorizedCall | undefined {
    if (hasChannelLayer(this.#deps.settings)) return undefined;
    try {
      checkCompensationKey(envelope);
      const session = this.#deps.sessions.peekOf(envelope);
      if (session === undefined) return undefined;
      const policyResult = this.#requirePermission(envelope, tool, session, undefined);
      if (!areValidNow(envelope.payload.params, tool)) return undefined;
      return { envelope, tool, session, policyResult, channel: undefined };
    } catch {
      return undefined;
    }
  }

  /** Retains the session of a delayed call until the call starts: its worker needs it. */
  async keepSession(session: SessionRecord, startAtMs: number): Promise<void> {
    await this.#deps.sessions.keepUntil?.(session, startAtMs);
  }

  #requirePermission(
    envelope: ToolCallEnvelope,
    tool: ResolvedTool,
    session: SessionRecord,
    channel: string | undefined,
  ): PolicyResult {
    const { settings, catalogue } = this.#deps;
    return requirePermission({
      tool,
      session,
      toolPolicy: toolPolicy(settings, tool),
      policy: settings.policy,
      registry: catalogue.toolPolicyFor?.(tool),
      channel,
      params: envelope.payload.params,
      taint: taintOf(envelope.control.requestTags, session),
      sandbox: settings.sandbox,
      unconfined: tool.unconfined === true,
      dedupeMode: envelope.transport.dedupeMode,
    });
  }

  /** The lookup is needed only where policy has a layer for channels. */
  async #channelOf(session: SessionRecord): Promise<string | undefined> {
    const { settings, approvals } = this.#deps;
    if (approvals === undefined || !hasChannelLayer(settings)) return undefined;
    return (await approvals.routeOf(session))?.channel.kind ?? 'none';
  }
}

function hasChannelLayer({ policy }: Settings): boolean {
  return Object.keys(policy.channels).length > 0;
}
