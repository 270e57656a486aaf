/** Checks that the fleet trusts the keys with which a command signs. */
import type { Pawl } from '../../producer/client.ts';
import { countUntrusting } from '../../producer/operations/signing-check.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { type CliContext, say, usageError, withPawl } from '../context.ts';

/**
 * Called before a command writes a signed record. Without the fleet's keys it would report success, although every worker refuses the
 * record. Throws `CONFIGURATION` when no worker trusts the keys, and warns when some do not.
 */
export async function requireTrustedKeys(context: CliContext, pawl: Pawl): Promise<void> {
  const { workers, untrusting } = await countUntrusting(pawl);
  if (untrusting === 0) return;
  const isWholeFleet = untrusting === workers;
  const subject = isWholeFleet ? 'the workers of this fleet' : `${untrusting} of ${plural(workers, 'worker')}`;
  const message = `The signing keys here are not those of ${subject}, which would refuse this command's record. Set PAWL_SIGNING_KEYS as on the workers; 'pawl doctor' compares the keys.`;
  if (isWholeFleet) throw usageError(message);
  say(context, message);
}

/** A command that writes a signed record, and needs nothing before its producer. */
export function signingCommand<Args extends readonly unknown[]>(
  work: (context: CliContext, pawl: Pawl, ...args: Args) => Promise<number | undefined>,
): (context: CliContext, ...args: Args) => Promise<number> {
  return (context, ...args) => withSigningPawl(context, (pawl) => work(context, pawl, ...args));
}

/** Runs the work of a command that writes a signed record, as `withPawl` does. */
export function withSigningPawl(
  context: CliContext,
  work: (pawl: Pawl) => Promise<number | undefined>,
): Promise<number> {
  return withPawl(context, async (pawl) => {
    await requireTrustedKeys(context, pawl);
    return work(pawl);
  });
}
