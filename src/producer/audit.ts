/** What a producer tells the audit trail of the calls that are handed in (I4), and how the trail is read. */
import type { AuditEvent, RecordAudit } from '../shared/audit.ts';
import { compensated } from '../shared/compensation.ts';
import { turnOf } from '../shared/envelope.ts';
import type { AuditEntry, AuditRecord, AuditTrail } from '../shared/store/audit.ts';
import { backgroundSchedule, type Schedule } from '../shared/time.ts';
import { qualifiedName } from '../shared/tool.ts';
import type { DispatchEvent } from './dispatch.ts';
import type { Offer } from './offers.ts';

const MAX_LOOKED = 100_000;

type Refusal = Extract<DispatchEvent, { type: 'refused' }>;
type OfferOf = (namespace: string, name: string) => Offer | undefined;

/** Refusals that say nothing of who asked, or for what. */
const SAME_FOR_ALL: ReadonlySet<string> = new Set(['CIRCUIT_OPEN', 'OVERLOADED', 'BACKEND_UNAVAILABLE']);
const COUNTED_MS = 1_000;

/**
 * Tells the trail of the calls that a producer hands in. An agent that goes on asking while a circuit is open is refused many thousand
 * times a second, and must not push other records out: of its refusals the first is told at once, and those that follow within a
 * second by one record, the last one's, that says how many they were (`times`).
 */
export class CallAudit {
  readonly #record: RecordAudit;
  readonly #offerOf: OfferOf;
  readonly #schedule: Schedule;
  readonly #counted = new Map<string, { times: number; last: Refusal }>();
  #stop = () => {};

  constructor(record: RecordAudit, offerOf: OfferOf, schedule: Schedule = backgroundSchedule) {
    this.#record = record;
    this.#offerOf = offerOf;
    this.#schedule = schedule;
  }

  observe(event: DispatchEvent): void {
    if (event.type === 'refused' && this.#isCounted(event)) return;
    const call = callEvent(event, this.#offerOf);
    if (call !== undefined) void this.#record(call);
  }

  #isCounted(refusal: Refusal): boolean {
    const { envelope, code } = refusal;
    if (envelope === undefined || !SAME_FOR_ALL.has(code)) return false;
    const kind = `${code} ${envelope.toolNamespace}.${envelope.toolName} ${envelope.target.sessionKey}`;
    const counted = this.#counted.get(kind);
    if (counted === undefined) {
      if (this.#counted.size === 0) this.#stop = this.#schedule(() => this.flush(), COUNTED_MS);
      this.#counted.set(kind, { times: 0, last: refusal });
      return false;
    }
    counted.times += 1;
    counted.last = refusal;
    return true;
  }

  /** Tells what was counted until now. */
  flush(): void {
    this.#stop();
    for (const { times, last } of this.#counted.values()) {
      const call = times === 0 ? undefined : callEvent(last, this.#offerOf);
      if (call !== undefined) void this.#record({ ...call, times });
    }
    this.#counted.clear();
  }
}

/** Undefined for what is told by another event, or says nothing of a call. */
function callEvent(event: DispatchEvent, offerOf: OfferOf): Extract<AuditEvent, { type: 'call' }> | undefined {
  if ((event.type !== 'accepted' && event.type !== 'refused') || event.envelope === undefined) return undefined;
  const { envelope } = event;
  const { target, payload, transport } = envelope;
  const { toolNamespace: namespace, toolName: name } = envelope;
  const offer = offerOf(namespace, name);
  const asked = {
    type: 'call',
    tool: qualifiedName({ namespace, name }),
    sessionKey: target.sessionKey,
    tenantId: target.tenantId,
    requestId: envelope.requestId,
    actorId: target.actorId,
    agentId: target.agentId,
    turnId: turnOf(envelope),
    correlationId: target.correlationId,
    compensates: compensated(envelope),
    ...(offer === undefined
      ? {}
      : { toolVersion: offer.version, tier: offer.tier, estimatedCostUnits: offer.budget?.costUnits ?? 1 }),
    idempotencyKey: payload.idempotencyKey,
    params: payload.params,
  } as const;
  if (event.type === 'refused') return { ...asked, answer: 'refused', code: event.code, reason: event.message };
  const { callId, answer, paramsDigest, submittedBy } = event;
  // A refusal follows, and says why.
  if (answer === 'conflict' || (answer === 'inflight' && transport.dedupeMode !== 'enforced')) return undefined;
  return { ...asked, callId, answer: ANSWERS[answer], paramsDigest, submittedBy };
}

const ANSWERS = { claimed: 'claimed', inflight: 'merged', ended: 'replayed' } as const;

/** What is looked for in the trail. A tool by its name, with or without its namespace. */
export interface AuditQuery {
  readonly sessionKey?: string | undefined;
  readonly tool?: string | undefined;
  readonly callId?: string | undefined;
  readonly type?: string | undefined;
  readonly sinceMs?: number | undefined;
  readonly limit?: number | undefined;
  /** Whether the one who asks may see a tenant's records; those that name no tenant have `undefined`. */
  readonly seesTenant?: (tenantId: string | undefined) => boolean;
}

/** The newest first, as far as Redis keeps them. */
export function findRecords(trail: AuditTrail, query: AuditQuery): Promise<readonly AuditEntry[]> {
  const { sessionKey, tool, callId, type, sinceMs, limit = 100, seesTenant = () => true } = query;
  const wanted = (record: AuditRecord) =>
    (sessionKey === undefined || record['sessionKey'] === sessionKey) &&
    (callId === undefined || record['callId'] === callId) &&
    (type === undefined || record.type === type) &&
    (tool === undefined || isOf(record['tool'], tool)) &&
    seesTenant(record['tenantId'] as string | undefined);
  return trail.newest(wanted, { limit, maxLooked: MAX_LOOKED, ...(sinceMs === undefined ? {} : { sinceMs }) });
}

function isOf(recorded: unknown, tool: string): boolean {
  return recorded === tool || (typeof recorded === 'string' && recorded.endsWith(`.${tool}`));
}
