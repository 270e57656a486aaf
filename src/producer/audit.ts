/** What a producer tells the audit trail of the calls that are handed in (I4), and how the trail is read. */
import type { AuditEvent } from '../shared/audit.ts';
import { compensated } from '../shared/compensation.ts';
import { turnOf } from '../shared/envelope.ts';
import type { AuditEntry, AuditRecord, AuditTrail } from '../shared/store/audit.ts';
import { qualifiedName } from '../shared/tool.ts';
import type { DispatchEvent } from './dispatch.ts';
import type { Offer } from './offers.ts';

const MAX_LOOKED = 100_000;

/** Undefined for what is told by another event, or says nothing of a call. */
export function callEvent(
  event: DispatchEvent,
  offerOf: (namespace: string, name: string) => Offer | undefined,
): AuditEvent | undefined {
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
