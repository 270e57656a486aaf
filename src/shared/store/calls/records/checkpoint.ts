/**
 * Checkpoints: an attempt stores a value for the next attempt of its call, in one field of the call's record. The start of an attempt reads
 * it with the other fields, and the end of the call removes it.
 */
import { Script } from '../../redis/script.ts';
import type { LedgerAccess } from '../ledger-context.ts';

const checkpointScript = new Script(new URL('./checkpoint.lua', import.meta.url));

export type CheckpointAnswer = 'written' | 'fenced' | 'ended';

interface CheckpointWrite {
  readonly callId: string;
  readonly fence: number;
  /** JSON. */
  readonly text: string;
}

/** The checkpoint in a record's field; undefined when no key of this fleet signed it. */
export function verifiedCheckpoint({ signatures }: LedgerAccess, callId: string, stored: string): string | undefined {
  const end = stored.indexOf('\n');
  const text = stored.slice(end + 1);
  return signatures.verify('checkpoint', callId, text, stored.slice(0, end)) ? text : undefined;
}

/** Replaces the call's checkpoint. Only the newest fence may. */
export async function writeCheckpoint(
  access: LedgerAccess,
  { callId, fence, text }: CheckpointWrite,
): Promise<CheckpointAnswer> {
  const stored = `${access.signatures.sign('checkpoint', callId, text)}\n${text}`;
  const [code] = await checkpointScript.run(access.redis, [access.callKeys(callId).record(callId)], [fence, stored]);
  return code as CheckpointAnswer;
}
