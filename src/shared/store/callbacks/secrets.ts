/** The secrets that sign callbacks. */
import { randomBytes } from 'node:crypto';
import { callbackSecret, secretFrom } from '../../callbacks/callback.ts';
import type { Settings } from '../../config/config.ts';
import type { Signatures } from '../../signing/signatures.ts';
import type { CallbackRecords } from './callbacks.ts';

interface CallbackSecrets {
  readonly settings: Pick<Settings, 'callbackSecrets'>;
  readonly signatures: Signatures;
  readonly callbacks: Pick<CallbackRecords, 'ownSecret'>;
}

/**
 * The secrets of a tenant's callbacks, the newest first: those of the settings, or one that follows from the first signing key. A fleet
 * without keys keeps one in Redis.
 */
export async function callbackSecrets(
  source: CallbackSecrets,
  tenantId: string | undefined,
): Promise<readonly string[]> {
  const secrets = await fleetSecrets(source);
  return secrets.map((secret) => callbackSecret(secret, tenantId));
}

async function fleetSecrets({ settings, signatures, callbacks }: CallbackSecrets): Promise<readonly string[]> {
  if (settings.callbackSecrets.length > 0) return settings.callbackSecrets;
  const key = signatures.sign('callback-secret', [], '');
  if (key !== '') return [secretFrom(key)];
  return [await callbacks.ownSecret(secretFrom(randomBytes(32).toString('base64')))];
}
