/** The signing key of a data folder, created on first use. */
import { randomBytes } from 'node:crypto';
import { existsSync, linkSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PawlError, reasonOf } from '../errors/failure.ts';
import type { SigningKey } from '../signing/signature.ts';

const MIN_KEY_LENGTH = 16;

/**
 * Reads the key, and creates it on first use. It is written to another file and linked into place, so that no process reads a partial key,
 * and one of several starting processes wins.
 */
export function ownKey(dataDir: string): SigningKey {
  const file = join(dataDir, 'signing-key');
  if (!existsSync(file)) {
    const temporary = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`;
    writeFileSync(temporary, randomBytes(32).toString('base64url'), { mode: 0o600, flush: true });
    try {
      linkSync(temporary, file);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    } finally {
      unlinkSync(temporary);
    }
  }
  const key = readKey(file);
  // A power failure or a full disk can leave an empty file, and an empty key protects nothing.
  if (key.length < MIN_KEY_LENGTH)
    throw new PawlError(
      'CONFIGURATION',
      `${file} contains no key. Remove it to create a new key; records that were signed with the old one are refused then.`,
    );
  return { kid: 'embedded', key };
}

function readKey(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new PawlError('CONFIGURATION', `The signing key ${file} cannot be read: ${reasonOf(error)}`, {
      cause: error,
    });
  }
}
