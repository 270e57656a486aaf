/**
 * What people allowed for the rest of a session: calls like one that they approved need no further decision (C24). Each is kept
 * under a key of what it allows, so that looking for one is one read.
 */
import type { Amendment, ApprovalRequest } from '../approval.ts';
import { isOpen } from '../command-prefix.ts';
import { asksToEscalate } from '../escalation.ts';
import { canonicalJson, digest } from '../fingerprint.ts';
import { commandOf, startsWith } from '../policy.ts';
import type { Seals } from '../seals.ts';
import { FleetKeys } from './keys.ts';
import type { Redis } from './redis.ts';
import { openedText, sealedText } from './sealed-text.ts';

/** A remembered approval holds at most this long. */
const GRANT_VALID_MS = 12 * 3_600_000;

export interface Grant {
  readonly sessionKey: string;
  readonly tool: {
    readonly namespace: string;
    readonly name: string;
    readonly version: string;
    readonly definition: string;
  };
  readonly amendment: Amendment;
  readonly approvalId: string;
  readonly by: string;
  readonly grantedAtMs: number;
  readonly validUntilMs: number;
}

export class Grants {
  readonly #redis: Redis;
  readonly #keys: FleetKeys;
  readonly #seals: Seals;

  constructor(redis: Redis, prefix: string, seals: Seals) {
    this.#redis = redis;
    this.#keys = new FleetKeys(prefix);
    this.#seals = seals;
  }

  async add(request: ApprovalRequest, by: string, nowMs: number): Promise<void> {
    const { id, session, tool, amendment } = request;
    if (amendment === undefined) return;
    const { namespace, name, version, definition } = tool;
    const grant: Grant = {
      sessionKey: session.key,
      tool: { namespace, name, version, definition },
      amendment,
      approvalId: id,
      by,
      grantedAtMs: nowMs,
      validUntilMs: nowMs + GRANT_VALID_MS,
    };
    const sealed = sealedText(grant, (text) => this.#seals.grant(session.key, text));
    const key = this.#keys.grants(session.key);
    const field = digest(canonicalJson([namespace, name, amendment]));
    await this.#redis.multi().hset(key, field, sealed).pexpire(key, GRANT_VALID_MS).exec();
  }

  /** The grant that covers a call; undefined when none does. */
  async find(
    sessionKey: string,
    tool: Grant['tool'],
    params: Readonly<Record<string, unknown>>,
    nowMs: number,
  ): Promise<Grant | undefined> {
    return (await this.#held(sessionKey, nowMs)).find(({ grant }) => covers(grant, tool, params))?.grant;
  }

  /** Those that hold, the newest first. */
  async list(sessionKey: string, nowMs: number): Promise<Grant[]> {
    const grants = (await this.#held(sessionKey, nowMs)).map(({ grant }) => grant);
    return grants.sort((one, next) => next.grantedAtMs - one.grantedAtMs);
  }

  /** Answers what was taken back; undefined when none that holds is of this approval. */
  async remove(sessionKey: string, approvalId: string, nowMs: number): Promise<Grant | undefined> {
    const found = (await this.#held(sessionKey, nowMs)).find(({ grant }) => grant.approvalId === approvalId);
    if (found === undefined) return undefined;
    await this.#redis.hdel(this.#keys.grants(sessionKey), found.field);
    return found.grant;
  }

  async #held(sessionKey: string, nowMs: number): Promise<{ readonly field: string; readonly grant: Grant }[]> {
    const stored = await this.#redis.hgetall(this.#keys.grants(sessionKey));
    return Object.entries(stored).flatMap(([field, entry]) => {
      const grant = openedText<Grant>(entry, (text, seal) => this.#seals.isGrant(sessionKey, text, seal));
      return grant?.sessionKey === sessionKey && grant.validUntilMs > nowMs ? [{ field, grant }] : [];
    });
  }
}

function covers({ tool, amendment }: Grant, asked: Grant['tool'], params: Readonly<Record<string, unknown>>): boolean {
  const same =
    tool.namespace === asked.namespace &&
    tool.name === asked.name &&
    tool.version === asked.version &&
    tool.definition === asked.definition;
  if (!same) return false;
  if (amendment.kind === 'same-parameters') return amendment.paramsDigest === digest(canonicalJson(params));
  // What was allowed for commands like this one was allowed inside the sandbox.
  if (asksToEscalate(params)) return false;
  const command = commandOf(params);
  // One that was remembered before such prefixes were refused, or put there by somebody else.
  if (command === undefined || isOpen(amendment.prefix)) return false;
  return startsWith(command, amendment.prefix);
}
