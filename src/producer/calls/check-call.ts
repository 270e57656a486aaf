/**
 * What is checked of a call before anything is written: session, tool, permission, schema, identity, budgets, approval.
 */

import { type Identity, type IdentityRules, identify, paramsDigest } from '../../shared/calls/call-id.ts';
import { checkKey } from '../../shared/calls/compensation.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { circuitKey, targetOf } from '../../shared/circuits/circuit-breaker.ts';
import { type Settings, scopeOf, toolPolicy } from '../../shared/config/config.ts';
import type { ReliabilityModes } from '../../shared/config/switches.ts';
import { denied, permit, taintOf, type Verdict } from '../../shared/policy/policy.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { Claim } from '../../shared/store/calls/claim.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { uuidv7 } from '../../shared/util/time.ts';
import type { Offer } from '../tools/tool-catalogue.ts';
import { type Admission, admissionOf } from './budgets.ts';
import { checkParams } from './params.ts';
import type { DispatchParts } from './submit-call.ts';

export type LoopGuard = Settings['reliability']['loopGuard'];

/** A call that its session may make. */
export interface Permitted {
  readonly envelope: ToolCallEnvelope;
  readonly offer: Offer;
  readonly circuit: string;
  /** The tool's own one, which most calls go through. */
  readonly ownCircuit: string;
  readonly modes: ReliabilityModes;
  readonly session: SessionRecord;
  readonly verdict: Verdict;
  readonly channel: string | undefined;
}

/** A call whose every part has been checked. */
export interface Admitted extends Pick<Permitted, 'envelope' | 'offer' | 'circuit' | 'modes' | 'channel'> {
  readonly paramsDigest: string;
  readonly identity: Identity;
  readonly admission: Admission;
  /** When the session's agent is to be warned, or stopped. */
  readonly loop?: { readonly loopId: string; readonly guard: LoopGuard };
  /** In shadow mode: the slot in which the call would have met its duplicates. */
  readonly shadow?: Claim['shadow'];
  /** The session's actor, where the call names another one. */
  readonly sessionActorId: string | undefined;
  /** A person has to decide: what policy says, and for which session. */
  readonly asks: Pick<Permitted, 'verdict' | 'session'> | undefined;
}

/** Checks calls, one after the other; whatever does not hold is thrown as a typed error. */
export class CallChecks {
  readonly #parts: DispatchParts;
  readonly #ownCircuits = new WeakMap<Offer, string>();

  constructor(parts: DispatchParts) {
    this.#parts = parts;
  }

  /** Session, tool, permission and schema; at once where all of them are known here. */
  permit(envelope: ToolCallEnvelope, opened?: SessionRecord): Permitted | Promise<Permitted> {
    checkKey(envelope);
    const { offers, sessionOf, settings } = this.#parts;
    const session = sessionOf(envelope, opened);
    const offer = offers.peek(envelope.toolNamespace, envelope.toolName);
    if (session instanceof Promise || offer === undefined || hasChannelLayer(settings))
      return this.#lookUp(envelope, session, offer);
    return this.#permitted(envelope, session, offer, undefined);
  }

  async #lookUp(
    envelope: ToolCallEnvelope,
    asked: SessionRecord | Promise<SessionRecord>,
    known: Offer | undefined,
  ): Promise<Permitted> {
    const session = await asked;
    const offer = known ?? (await this.#parts.offers.find(envelope.toolNamespace, envelope.toolName));
    return this.#permitted(envelope, session, offer, await this.#channelOf(session));
  }

  #permitted(asked: ToolCallEnvelope, session: SessionRecord, offer: Offer, channel: string | undefined): Permitted {
    const first = this.#permit(asked, offer, session, channel);
    const envelope = checkParams(asked, offer);
    // Policy may look at parameters: those that run.
    const verdict = envelope === asked ? first : this.#permit(envelope, offer, session, channel);
    const ownCircuit = this.#ownCircuitOf(offer);
    const circuit = this.#circuitOf(envelope, offer) ?? ownCircuit;
    const modes = this.#parts.switches.modes(offer);
    return { envelope, offer, circuit, ownCircuit, modes, session, verdict, channel };
  }

  #ownCircuitOf(offer: Offer): string {
    let circuit = this.#ownCircuits.get(offer);
    if (circuit === undefined) {
      circuit = circuitKey({ hint: 'tool', tool: qualifiedName(offer) });
      this.#ownCircuits.set(offer, circuit);
    }
    return circuit;
  }

  /** Undefined for the tool's own. */
  #circuitOf({ transport, target: { tenantId }, payload }: ToolCallEnvelope, offer: Offer): string | undefined {
    const { circuitBreakerHint: hint = 'tool' } = transport;
    const { dependency, targetParameter } = { ...offer.circuit, ...toolPolicy(this.#parts.settings, offer).circuit };
    const { params } = payload;
    const named = targetParameter !== undefined && Object.hasOwn(params, targetParameter);
    const target = named ? targetOf(params[targetParameter]) : undefined;
    if (hint === 'tool' && tenantId === undefined && target === undefined) return undefined;
    return circuitKey({ hint, tool: qualifiedName(offer), dependency, target, tenantId });
  }

  /** Identity, budgets and approval. */
  async admit({ envelope, offer, circuit, modes, session, verdict, channel }: Permitted): Promise<Admitted> {
    const digest = paramsDigest(envelope.payload.params, offer.inputSchema);
    const shard = session.shards?.[offer.tier] ?? 0;
    const asks = verdict.decision === 'ask' && (await this.#mustAsk(envelope, offer, session, verdict));
    const known = this.identify(envelope, offer, digest, { shard, asks });
    const identity =
      modes.dedupe === 'on'
        ? known
        : this.identify(envelope, offer, digest, { shard, asks, apart: uuidv7(this.#parts.clock) });
    const admission = admissionOf(envelope, offer, session, {
      settings: this.#parts.settings,
      registry: this.#parts.offers.ruleFor?.(offer),
      channel,
      shards: this.#parts.shards?.layout[offer.tier].current ?? 1,
      nowMs: this.#parts.clock.now(),
    });
    return {
      envelope: admission.envelope,
      offer,
      paramsDigest: digest,
      identity,
      circuit,
      modes,
      admission,
      channel,
      sessionActorId: session.actorId === envelope.target.actorId ? undefined : session.actorId,
      asks: asks ? { verdict, session } : undefined,
      ...this.#loopGuard(offer, identity, modes),
      ...(modes.dedupe === 'shadow'
        ? { shadow: { slotId: known.mergeId ?? known.callId, derived: known.mergeId !== undefined } }
        : {}),
    };
  }

  #permit(envelope: ToolCallEnvelope, offer: Offer, session: SessionRecord, channel: string | undefined): Verdict {
    const { settings } = this.#parts;
    return permit({
      tool: offer,
      session,
      toolPolicy: toolPolicy(settings, offer),
      policy: settings.policy,
      registry: this.#parts.offers.ruleFor?.(offer),
      channel,
      params: envelope.payload.params,
      taint: taintOf(envelope.control.requestTags, session),
      sandbox: settings.sandbox,
      unconfined: offer.unconfined === true,
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
  async #mustAsk(envelope: ToolCallEnvelope, offer: Offer, session: SessionRecord, verdict: Verdict): Promise<boolean> {
    const { approvals } = this.#parts;
    if (approvals === undefined) throw denied(offer, `${verdict.reason}, and here nobody can be asked`, verdict.rule);
    return !(await approvals.isGranted(session, offer, envelope, verdict));
  }

  /** R26. The kill switch counts nothing. */
  #loopGuard(offer: Offer, { loopId }: Identity, modes: ReliabilityModes): Pick<Admitted, 'loop'> {
    if (loopId === undefined || !modes.enabled) return {};
    const { settings } = this.#parts;
    const own = defined<Partial<LoopGuard>>(toolPolicy(settings, offer).loopGuard ?? {});
    return { loop: { loopId, guard: { ...settings.reliability.loopGuard, ...own } } };
  }

  identify(
    envelope: ToolCallEnvelope,
    offer: Offer,
    digest: string,
    { shard, asks, ...rules }: Pick<IdentityRules, 'shard' | 'independent' | 'apart'> & { readonly asks: boolean },
  ): Identity {
    const { settings } = this.#parts;
    const { reliability } = settings;
    // What a person decides on is one session's call: nobody else asked them, and they may edit its parameters.
    const isGlobal = scopeOf(settings, offer) === 'global' && !asks;
    return identify(envelope, digest, {
      tier: offer.tier,
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
