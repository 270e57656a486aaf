/**
 * What is checked of a call before anything is written: session, tool, permission, schema, identity, budgets, approval.
 */

import { type Identity, type IdentityRules, identify, paramsDigest } from '../../shared/calls/call-id.ts';
import { checkCompensationKey } from '../../shared/calls/compensation.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { circuitKey, circuitTarget } from '../../shared/circuits/circuit-key.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { ReliabilityModes } from '../../shared/config/switches.ts';
import { scopeOf, toolPolicy } from '../../shared/config/tool-settings.ts';
import { denied, requirePermission } from '../../shared/policy/policy.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import { taintOf } from '../../shared/policy/taint.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { uuidv7 } from '../../shared/util/time.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import { admissionOf } from './budgets.ts';
import type { Admitted, LoopGuard, Permitted } from './checked-call.ts';
import { checkParams } from './params.ts';
import type { SubmitDeps } from './submit-deps.ts';

/** Checks calls, one after the other; whatever does not hold is thrown as a typed error. */
export class CallChecks {
  readonly #parts: SubmitDeps;
  readonly #ownCircuits = new WeakMap<ResolvedTool, string>();

  constructor(parts: SubmitDeps) {
    this.#parts = parts;
  }

  /** Session, tool, permission and schema; at once where all of them are known here. */
  permit(envelope: ToolCallEnvelope, opened?: SessionRecord): Permitted | Promise<Permitted> {
    checkCompensationKey(envelope);
    const { catalogue, sessionOf, settings } = this.#parts;
    const session = sessionOf(envelope, opened);
    const published = catalogue.peek(envelope.toolNamespace, envelope.toolName);
    if (session instanceof Promise || published === undefined || hasChannelLayer(settings))
      return this.#lookUp(envelope, session, published);
    return this.#permitted(envelope, session, published, undefined);
  }

  async #lookUp(
    envelope: ToolCallEnvelope,
    asked: SessionRecord | Promise<SessionRecord>,
    known: ResolvedTool | undefined,
  ): Promise<Permitted> {
    const session = await asked;
    const published = known ?? (await this.#parts.catalogue.find(envelope.toolNamespace, envelope.toolName));
    return this.#permitted(envelope, session, published, await this.#channelOf(session));
  }

  #permitted(
    asked: ToolCallEnvelope,
    session: SessionRecord,
    published: ResolvedTool,
    channel: string | undefined,
  ): Permitted {
    const first = this.#permit(asked, published, session, channel);
    const envelope = checkParams(asked, published);
    // Policy may look at parameters: those that run.
    const verdict = envelope === asked ? first : this.#permit(envelope, published, session, channel);
    const ownCircuit = this.#ownCircuitOf(published);
    const circuit = this.#circuitOf(envelope, published) ?? ownCircuit;
    const modes = this.#parts.switches.modes(published);
    return { envelope, published, circuit, ownCircuit, modes, session, verdict, channel };
  }

  #ownCircuitOf(published: ResolvedTool): string {
    let circuit = this.#ownCircuits.get(published);
    if (circuit === undefined) {
      circuit = circuitKey({ hint: 'tool', tool: qualifiedName(published) });
      this.#ownCircuits.set(published, circuit);
    }
    return circuit;
  }

  /** Undefined for the tool's own. */
  #circuitOf(
    { transport, target: { tenantId }, payload }: ToolCallEnvelope,
    published: ResolvedTool,
  ): string | undefined {
    const { circuitBreakerHint: hint = 'tool' } = transport;
    const { dependency, targetParameter } = {
      ...published.circuit,
      ...toolPolicy(this.#parts.settings, published).circuit,
    };
    const { params } = payload;
    const named = targetParameter !== undefined && Object.hasOwn(params, targetParameter);
    const target = named ? circuitTarget(params[targetParameter]) : undefined;
    if (hint === 'tool' && tenantId === undefined && target === undefined) return undefined;
    return circuitKey({ hint, tool: qualifiedName(published), dependency, target, tenantId });
  }

  /** Identity, budgets and approval. */
  async admit({ envelope, published, circuit, modes, session, verdict, channel }: Permitted): Promise<Admitted> {
    const digest = paramsDigest(envelope.payload.params, published.inputSchema);
    const shard = session.shards?.[published.tier] ?? 0;
    const asks = verdict.decision === 'ask' && (await this.#mustAsk(envelope, published, session, verdict));
    const known = this.identify(envelope, published, digest, { shard, asks });
    const identity =
      modes.dedupe === 'on'
        ? known
        : this.identify(envelope, published, digest, { shard, asks, apart: uuidv7(this.#parts.clock) });
    const admission = admissionOf(envelope, published, session, {
      settings: this.#parts.settings,
      registry: this.#parts.catalogue.toolPolicyFor?.(published),
      channel,
      shards: this.#parts.shards?.layout[published.tier].current ?? 1,
      nowMs: this.#parts.clock.now(),
    });
    return {
      envelope: admission.envelope,
      published,
      paramsDigest: digest,
      identity,
      circuit,
      modes,
      admission,
      channel,
      sessionActorId: session.actorId === envelope.target.actorId ? undefined : session.actorId,
      asks: asks ? { verdict, session } : undefined,
      ...this.#loopGuard(published, identity, modes),
      ...(modes.dedupe === 'shadow'
        ? { shadow: { slotId: known.mergeId ?? known.callId, derived: known.mergeId !== undefined } }
        : {}),
    };
  }

  #permit(
    envelope: ToolCallEnvelope,
    published: ResolvedTool,
    session: SessionRecord,
    channel: string | undefined,
  ): PolicyResult {
    const { settings } = this.#parts;
    return requirePermission({
      tool: published,
      session,
      toolPolicy: toolPolicy(settings, published),
      policy: settings.policy,
      registry: this.#parts.catalogue.toolPolicyFor?.(published),
      channel,
      params: envelope.payload.params,
      taint: taintOf(envelope.control.requestTags, session),
      sandbox: settings.sandbox,
      unconfined: published.unconfined === true,
      dedupeMode: envelope.transport.dedupeMode,
    });
  }

  /** Asked for only where policy has a layer for channels. */
  #channelOf(session: SessionRecord): Promise<string | undefined> | undefined {
    const { settings, approvals } = this.#parts;
    if (!hasChannelLayer(settings)) return undefined;
    return approvals?.routeOf(session).then((route) => route?.channel.kind ?? 'none');
  }

  /** Whether a person has to decide on this very call. Throws `PERMISSION_DENIED` where nobody can be asked. */
  async #mustAsk(
    envelope: ToolCallEnvelope,
    published: ResolvedTool,
    session: SessionRecord,
    verdict: PolicyResult,
  ): Promise<boolean> {
    const { approvals } = this.#parts;
    if (approvals === undefined)
      throw denied(published, `${verdict.reason}, and here nobody can be asked`, verdict.rule);
    return !(await approvals.isGranted(session, published, envelope, verdict));
  }

  /** R26. The kill switch counts nothing. */
  #loopGuard(published: ResolvedTool, { loopId }: Identity, modes: ReliabilityModes): Pick<Admitted, 'loop'> {
    if (loopId === undefined || !modes.enabled) return {};
    const { settings } = this.#parts;
    const own = defined<Partial<LoopGuard>>(toolPolicy(settings, published).loopGuard ?? {});
    return { loop: { loopId, guard: { ...settings.reliability.loopGuard, ...own } } };
  }

  identify(
    envelope: ToolCallEnvelope,
    published: ResolvedTool,
    digest: string,
    { shard, asks, ...rules }: Pick<IdentityRules, 'shard' | 'independent' | 'apart'> & { readonly asks: boolean },
  ): Identity {
    const { settings } = this.#parts;
    const { reliability } = settings;
    // What a person decides on is one session's call: nobody else asked them, and they may edit its parameters.
    const isGlobal = scopeOf(settings, published) === 'global' && !asks;
    return identify(envelope, digest, {
      tier: published.tier,
      // A call that all sessions share is where every session finds it.
      shard: isGlobal ? 0 : shard,
      scope: isGlobal ? 'global' : 'session',
      derive: reliability.deriveKeys === 'on',
      derivedReplay: reliability.derivedReplay,
      ...rules,
    });
  }
}

function hasChannelLayer({ policy }: Settings): boolean {
  return Object.keys(policy.channels).length > 0;
}
