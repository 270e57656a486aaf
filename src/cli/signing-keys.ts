/** Whether the fleet believes what a command signs. */
import type { Pawl } from '../producer/client.ts';
import { keyFingerprints } from '../shared/signature.ts';
import { type CliContext, say, usageError } from './context.ts';
import { count } from './print.ts';

/** Processes understand each other when each verifies what the other signs: with its first key. */
export function understand(one: readonly string[], other: readonly string[]): boolean {
  const [first] = one;
  const [second] = other;
  if (first === undefined || second === undefined) return first === second;
  return other.includes(first) && one.includes(second);
}

/**
 * Before a command says what must be signed: without the fleet's keys it would report as done what every worker refuses. Throws
 * `CONFIGURATION` when no worker would believe it, and says so when some would not.
 */
export async function checkBelieved(context: CliContext, pawl: Pawl): Promise<void> {
  const { signingKeys, redisUrl } = pawl.settings;
  // An embedded fleet signs with a key of the data folder.
  if (signingKeys.length === 0 && redisUrl === undefined) return;
  const own = keyFingerprints(signingKeys);
  const { workers } = await pawl.backend.catalogue.read();
  const strangers = workers.filter(({ signing }) => signing !== undefined && !understand(own, signing));
  if (strangers.length === 0) return;
  const all = strangers.length === workers.length;
  const who = all ? 'the workers of this fleet' : `${strangers.length} of ${count(workers.length, 'worker')}`;
  const message = `The signing keys here are not those of ${who}, who would refuse what this command says. Set PAWL_SIGNING_KEYS as they have it; 'pawl doctor' tells the keys apart.`;
  if (all) throw usageError(message);
  say(context, message);
}
