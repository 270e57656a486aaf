/**
 * What is signed, and what each signature is bound to (DESIGN, decision 11): whoever can write to Redis but has no key can make
 * nobody run a call, believe a result or accept a decision. Without keys, nothing is signed and everything believed.
 *
 * | signed   | bound to                                                                |
 * |----------|-------------------------------------------------------------------------|
 * | request  | its call, its generation (which is also the time from which it holds)   |
 * | outcome  | its call and the state that it ended in; a large one is signed by its   |
 * |          | reference, which holds the digest of every part. Whether it is another  |
 * |          | call's, too, which was merged into this one, their IDs say              |
 * | approval | its ID and the digest of all that a decision is about                   |
 * | preview  | its approval                                                            |
 * | decision | its approval; what it covers stands in itself                           |
 * | session  | its key                                                                 |
 * | grant    | its session                                                             |
 * | spec     | its tool's qualified name; the revision stands in itself                |
 * | tool     | its ID, as a worker publishes it; where its tier has keys of its own,   |
 * |          | only these sign it                                                      |
 * | message  | whom it is for, or what it is about                                     |
 * | question | its ID                                                                  |
 * | answer   | its question                                                            |
 * | audit    | its record's number and the seal of the record before it                |
 */
import { type ApprovalRequest, type Decision, digestOf } from '../approvals/approval.ts';
import type { AuditEvent, RecordAudit } from '../audit/audit-event.ts';
import { type Outcome, resultError } from '../calls/outcome.ts';
import { failureOf } from '../errors/failure.ts';
import { digest } from '../schema/canonical-json.ts';
import type { Tier } from '../tools/tool.ts';
import type { Signer } from './signature.ts';

/** A signed request holds this long after its job was queued. */
const REQUEST_VALID_MS = 7 * 24 * 3_600_000;

/** Refusals that one process remembers having told. */
const MAX_TOLD = 10_000;

/** Keys of tiers that have their own. */
export type WorkerSigners = Readonly<Partial<Record<Tier, Signer>>>;
type Refused = Extract<AuditEvent, { type: 'refused' }>;
/** What is signed of an outcome. */
type OutcomeKind = 'outcome' | 'outcome-parts';

export class Signatures {
  readonly #signer: Signer | undefined;
  readonly #audit: RecordAudit;
  readonly #workerSigners: WorkerSigners;
  readonly #told = new Set<string>();

  constructor(signer?: Signer, audit: RecordAudit = () => {}, workerSigners: WorkerSigners = {}) {
    this.#signer = signer;
    this.#audit = audit;
    this.#workerSigners = workerSigners;
  }

  /** Whether anything is signed at all. */
  get present(): boolean {
    return this.#signer !== undefined;
  }

  /** Of the keys (`keyFingerprints`). */
  get fingerprints(): readonly string[] {
    return this.#signer?.fingerprints ?? [];
  }

  #sign(...parts: readonly string[]): string {
    return this.#signer?.sign(...parts) ?? '';
  }

  #holds(signature: string, refused: Omit<Refused, 'type'>, ...parts: readonly string[]): boolean {
    if (this.#signer === undefined || this.#signer.verify(signature, ...parts)) return true;
    this.#tell(refused, signature, ...parts);
    return false;
  }

  /** Once: a page that shows what is refused looks at it again and again, and must not push other records out of the trail. */
  #tell(refused: Omit<Refused, 'type'>, ...seen: readonly string[]): void {
    const name = digest(JSON.stringify(seen));
    if (this.#told.has(name)) return;
    if (this.#told.size >= MAX_TOLD) this.#told.clear();
    this.#told.add(name);
    void this.#audit({ type: 'refused', ...refused });
  }

  request(callId: string, generation: string, resolution: string, text: string): string {
    return this.#sign('request', callId, generation, resolution, text);
  }

  isRequest(
    { callId, generation, resolution, text }: Record<'callId' | 'generation' | 'resolution' | 'text', string>,
    signature: string,
    nowMs: number,
  ): boolean {
    const refused = { what: 'request', callId, reason: 'the request is not signed by this fleet' } as const;
    if (!this.#holds(signature, refused, 'request', callId, generation, resolution, text)) return false;
    if (this.#signer === undefined || nowMs - Number(generation) <= REQUEST_VALID_MS) return true;
    void this.#audit({ type: 'refused', ...refused, reason: 'the signed request is too old' });
    return false;
  }

  /** `kind`: the outcome itself, or the reference to a large one. */
  outcome(callId: string, state: string, text: string, kind: OutcomeKind = 'outcome'): string {
    return this.#sign(kind, callId, state, text);
  }

  isOutcome(callId: string, state: string, text: string, signature: string, kind: OutcomeKind = 'outcome'): boolean {
    const refused = { what: 'outcome', callId, reason: 'the outcome is not signed by this fleet' } as const;
    return this.#holds(signature, refused, kind, callId, state, text);
  }

  /** The outcome, or in place of one that nobody with a key wrote, an error. */
  verifiedOutcome(callId: string, state: string, text: string, signature: string): Outcome {
    return this.isOutcome(callId, state, text, signature) ? (JSON.parse(text) as Outcome) : FORGED_OUTCOME;
  }

  /** A record says of its call that it is another one, which it cannot be. Answers what stands in for the outcome. */
  refuseMerged(callId: string): Outcome {
    this.#tell({ what: 'outcome', callId, reason: 'the outcome is another call’s' }, callId);
    return FORGED_OUTCOME;
  }

  /** A part of what is large of a call is not what its reference says. */
  refuseParts(callId: string, what: 'outcome' | 'request'): void {
    void this.#audit({ type: 'refused', what, callId, reason: `a part of the ${what} was changed` });
  }

  approval(request: ApprovalRequest, text: string): string {
    return this.#sign('approval', request.id, digestOf(request), text);
  }

  isApproval(request: ApprovalRequest, text: string, signature: string): boolean {
    const { id, callId } = request;
    const refused = { what: 'approval', callId, reason: 'the approval is not signed by this fleet' } as const;
    return this.#holds(signature, refused, 'approval', id, digestOf(request), text);
  }

  preview(approvalId: string, text: string): string {
    return this.#sign('preview', approvalId, text);
  }

  isPreview(approvalId: string, text: string, signature: string): boolean {
    const refused = { what: 'approval', reason: `the preview of ${approvalId} is not signed by this fleet` } as const;
    return this.#holds(signature, refused, 'preview', approvalId, text);
  }

  decision(approvalId: string, text: string): string {
    return this.#sign('decision', approvalId, text);
  }

  /** The decision, when somebody with a key wrote it. */
  verifiedDecision(request: ApprovalRequest, text: string, signature: string): Decision | undefined {
    const refused = {
      what: 'decision',
      callId: request.callId,
      reason: 'the decision is not signed by this fleet',
    } as const;
    return this.#holds(signature, refused, 'decision', request.id, text) ? (JSON.parse(text) as Decision) : undefined;
  }

  session(sessionKey: string, text: string): string {
    return this.#sign('session', sessionKey, text);
  }

  isSession(sessionKey: string, text: string, signature: string): boolean {
    const refused = { what: 'session', sessionKey, reason: 'the session is not signed by this fleet' } as const;
    return this.#holds(signature, refused, 'session', sessionKey, text);
  }

  grant(sessionKey: string, text: string): string {
    return this.#sign('grant', sessionKey, text);
  }

  isStandingApproval(sessionKey: string, text: string, signature: string): boolean {
    const refused = { what: 'grant', sessionKey, reason: 'the grant is not signed by this fleet' } as const;
    return this.#holds(signature, refused, 'grant', sessionKey, text);
  }

  spec(tool: string, text: string): string {
    return this.#sign('spec', tool, text);
  }

  isSpec(tool: string, text: string, signature: string): boolean {
    const refused = { what: 'spec', reason: `the registry's record of ${tool} is not signed by this fleet` } as const;
    return this.#holds(signature, refused, 'spec', tool, text);
  }

  /** Whether tools of a tier are signed with keys that its workers alone have. */
  hasOwnKey(tier: Tier): boolean {
    return this.#workerSigners[tier] !== undefined;
  }

  publishedTool(tier: Tier, id: string, text: string): string {
    return (this.#workerSigners[tier] ?? this.#signer)?.sign('tool', id, text) ?? '';
  }

  isPublishedTool(tier: Tier, id: string, text: string, signature: string): boolean {
    const signer = this.#workerSigners[tier] ?? this.#signer;
    if (signer === undefined || signer.verify(signature, 'tool', id, text)) return true;
    this.refusePublishedTool(id, `is not signed by a worker of the ${tier} tier`, text);
    return false;
  }

  refusePublishedTool(id: string, reason: string, ...seen: readonly string[]): void {
    this.#tell({ what: 'tool', reason: `the published tool ${id} ${reason}` }, id, reason, ...seen);
  }

  /** What workers tell each other. */
  message(about: string, text: string): string {
    return this.#sign('message', about, text);
  }

  isMessage(about: string, text: string, signature: string): boolean {
    const refused = { what: 'message', reason: `a message about ${about} is not signed by this fleet` } as const;
    return this.#holds(signature, refused, 'message', about, text);
  }

  question(id: string, text: string): string {
    return this.#sign('question', id, text);
  }

  isInputRequired(id: string, text: string, signature: string): boolean {
    const refused = { what: 'question', reason: `the question ${id} is not signed by this fleet` } as const;
    return this.#holds(signature, refused, 'question', id, text);
  }

  answer(id: string, text: string): string {
    return this.#sign('answer', id, text);
  }

  isAnswer(id: string, text: string, signature: string): boolean {
    const refused = { what: 'answer', reason: `the answer to ${id} is not signed by this fleet` } as const;
    return this.#holds(signature, refused, 'answer', id, text);
  }

  /** Without keys a plain digest: it shows edits, and cannot show who made them. */
  audit(seq: number, previous: string, text: string): string {
    return this.#signer?.sign('audit', String(seq), previous, text) ?? plainSignature(seq, previous, text);
  }

  isAudit(seq: number, previous: string, text: string, signature: string): boolean {
    if (this.#signer === undefined) return signature === plainSignature(seq, previous, text);
    return this.#signer.verify(signature, 'audit', String(seq), previous, text);
  }

  foreignKey(signature: string): string | undefined {
    const kid = signature.slice(0, Math.max(0, signature.lastIndexOf(':')));
    const key = kid === PLAIN ? '' : kid;
    const isHere = key === '' ? this.#signer === undefined : this.#signer?.knows(key) === true;
    return isHere ? undefined : key;
  }

  /** A text that whoever gets it can bring back, and nobody can make. */
  token(text: string): string | undefined {
    return this.#signer?.sign('token', text);
  }

  isToken(text: string, signature: string): boolean {
    return this.#signer?.verify(signature, 'token', text) ?? false;
  }
}

/** Stands where a seal has the name of its key. */
const PLAIN = 'sha256';

function plainSignature(seq: number, previous: string, text: string): string {
  return `${PLAIN}:${digest(`${seq} ${previous} ${text}`)}`;
}

/** Stands in for an outcome that nobody with a key wrote. */
export const FORGED_OUTCOME: Outcome = {
  status: 'error',
  toolName: '',
  durationMs: 0,
  attempts: 0,
  error: resultError(
    failureOf(
      'SIGNATURE_INVALID',
      'The stored result was not written by a worker of this fleet: it is not to be believed.',
    ),
    'error',
  ),
};
