/**
 * Standing approvals: decisions of people that cover later calls of the same kind in a session. Each has a field of its own in the
 * session's hash, so that a look-up is one read.
 */
import type { ApprovalRequest, StandingApprovalRequest } from '../../approvals/approval.ts';
import { compensatedCallId } from '../../calls/compensation.ts';
import type { ToolCallEnvelope } from '../../calls/envelope.ts';
import { isOpenPrefix } from '../../policy/command-prefix.ts';
import { commandOf, commandStartsWith } from '../../policy/command-rules.ts';
import { asksToEscalate } from '../../policy/sandbox-policy.ts';
import { canonicalJson, digest } from '../../schema/canonical-json.ts';
import type { ToolReference } from '../../tools/tool.ts';
import { replaceField } from '../redis/compare-and-set.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { signedText, verifiedText } from '../signing/signed-text.ts';

/** A standing approval holds at most this long. */
const GRANT_VALID_MS = 12 * 3_600_000;

export interface StandingApproval {
  readonly sessionKey: string;
  readonly tool: ToolReference & { readonly version: string; readonly definition: string };
  readonly amendment: StandingApprovalRequest;
  /** The tools whose output may have shaped the parameters, as the approver saw them. Records of earlier versions have none. */
  readonly taint?: readonly string[];
  readonly approvalId: string;
  readonly by: string;
  readonly grantedAtMs: number;
  readonly validUntilMs: number;
}

/** A call that needs a decision. */
interface StandingApprovalSearch {
  readonly sessionKey: string;
  readonly tool: StandingApproval['tool'];
  readonly envelope: ToolCallEnvelope;
  /** The tools whose output may steer this call: the approver must have seen them. */
  readonly askedForTaint?: readonly string[] | undefined;
  /** Its programs would run outside of the sandbox. */
  readonly unconfined?: boolean | undefined;
  readonly nowMs: number;
}

interface Stored {
  readonly field: string;
  readonly text: string;
  readonly grant: StandingApproval;
}

export class StandingApprovals extends FleetRecords {
  async add(request: ApprovalRequest, by: string, nowMs: number): Promise<void> {
    const { id, session, tool, amendment, taint } = request;
    if (amendment === undefined) return;
    const { namespace, name, version, definition } = tool;
    const grant: StandingApproval = {
      sessionKey: session.key,
      tool: { namespace, name, version, definition },
      amendment,
      taint,
      approvalId: id,
      by,
      grantedAtMs: nowMs,
      validUntilMs: nowMs + GRANT_VALID_MS,
    };
    const signed = signedText(this.signatures, 'grant', session.key, grant);
    const key = this.keys.standingApprovals(session.key);
    const field = digest(canonicalJson([namespace, name, amendment]));
    // The hash expires with its newest grant, so expired ones must be removed here.
    for (const stored of await this.#stored(session.key))
      if (!isValidAt(stored, nowMs)) await this.#remove(session.key, stored);
    await this.redis.multi().hset(key, field, signed).pexpire(key, GRANT_VALID_MS).exec();
  }

  async find(search: StandingApprovalSearch): Promise<StandingApproval | undefined> {
    // A standing approval never covers a compensating call.
    if (compensatedCallId(search.envelope) !== undefined) return undefined;
    return (await this.list(search.sessionKey, search.nowMs)).find((grant) => covers(grant, search));
  }

  /** Lists the valid ones, the newest first. */
  async list(sessionKey: string, nowMs: number): Promise<StandingApproval[]> {
    const valid = (await this.#stored(sessionKey)).filter((stored) => isValidAt(stored, nowMs));
    return valid.map(({ grant }) => grant).sort((one, next) => next.grantedAtMs - one.grantedAtMs);
  }

  /** Revokes the standing approval of an approval and returns it; undefined when there is no valid one. */
  async remove(sessionKey: string, approvalId: string, nowMs: number): Promise<StandingApproval | undefined> {
    const stored = (await this.#stored(sessionKey)).find(({ grant }) => grant.approvalId === approvalId);
    if (stored === undefined || !isValidAt(stored, nowMs)) return undefined;
    return (await this.#remove(sessionKey, stored)) ? stored.grant : undefined;
  }

  /** False when another approval has replaced it. */
  #remove(sessionKey: string, { field, text }: Stored): Promise<boolean> {
    return replaceField(this.redis, this.keys.standingApprovals(sessionKey), { field, expected: text });
  }

  async #stored(sessionKey: string): Promise<Stored[]> {
    const fields = await this.redis.hgetall(this.keys.standingApprovals(sessionKey));
    return Object.entries(fields).flatMap(([field, text]) => {
      const grant = verifiedText<StandingApproval>(this.signatures, 'grant', sessionKey, text);
      return grant?.sessionKey === sessionKey ? [{ field, text, grant }] : [];
    });
  }
}

function isValidAt({ grant }: Stored, nowMs: number): boolean {
  return grant.validUntilMs > nowMs;
}

function covers(
  { tool, amendment, taint = [] }: StandingApproval,
  { tool: calledTool, envelope, askedForTaint = [], unconfined = false }: StandingApprovalSearch,
): boolean {
  const { params } = envelope.payload;
  const same =
    tool.namespace === calledTool.namespace &&
    tool.name === calledTool.name &&
    tool.version === calledTool.version &&
    tool.definition === calledTool.definition;
  if (!same || askedForTaint.some((source) => !taint.includes(source))) return false;
  if (amendment.kind === 'same-parameters') return amendment.paramsDigest === digest(canonicalJson(params));
  // A standing approval of commands covers runs inside the sandbox alone.
  if (unconfined || asksToEscalate(params)) return false;
  const command = commandOf(params);
  // An earlier version, or another writer, may have stored a prefix that is refused today.
  if (command === undefined || isOpenPrefix(amendment.prefix)) return false;
  return commandStartsWith(command, amendment.prefix);
}
