/**
 * Records used approvals outside of Redis. So an attacker who restores an earlier state of Redis, or copies an approved call's record,
 * cannot use one approval twice. Each has a file in the data folder that the workers of a machine share.
 */
import { randomBytes } from 'node:crypto';
import { link, mkdir, readdir, readFile, rename, stat, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PawlError } from '../../shared/errors/failure.ts';
import { digest } from '../../shared/schema/canonical-json.ts';

const STATES = ['running', 'free', 'ended'] as const;

/**
 * running  an attempt may have had its effect
 * free     the last attempt ended in a way that lets another one follow
 * ended    the call has its outcome
 */
export interface Use {
  readonly state: (typeof STATES)[number];
  readonly fence: number;
  readonly token: string;
}

/** An attempt that is about to use an approval. */
export interface NextUse {
  readonly fence: number;
  readonly token: string;
  readonly mayRepeat: boolean;
}

/** The reason why this attempt may not use an approval that was used before; undefined when it may, or uses it already. */
export function reuseRefusal(previous: Use, use: NextUse): string | undefined {
  if (previous.token === use.token && previous.state === 'running') return undefined;
  if (previous.state === 'ended') return 'it was used already';
  if (previous.fence >= use.fence) return 'an attempt under it began before this one';
  if (previous.state === 'running' && !use.mayRepeat) return 'an attempt under it began and left no record';
  return undefined;
}

/** An attempt under an approval that has ended, even if it did not use the approval. */
export interface PastUse {
  readonly fence: number;
  readonly token: string;
  readonly ended: boolean;
}

/**
 * The record that an attempt leaves when it has ended, if any. An attempt that did not use the approval changes nothing, because the
 * stored record belongs to another attempt.
 */
export function endedUse({ fence, token, ended }: PastUse, previous: Use | undefined): Use | undefined {
  if (ended) return { state: 'ended', fence, token };
  return previous?.state === 'running' && previous.token === token ? { state: 'free', fence, token } : undefined;
}

const RETENTION_MS = 8 * 24 * 3_600_000;

export class UsedApprovals {
  readonly #folder: string;
  #pruned: Promise<void> | undefined;

  constructor(dataDir: string) {
    this.#folder = join(dataDir, 'used-approvals');
  }

  /** Records that an attempt uses an approval. Returns the reason if it may not. Throws `AUDIT_UNAVAILABLE`. */
  begin(name: string, use: NextUse): Promise<string | undefined> {
    const file = this.#file(name);
    const next: Use = { state: 'running', fence: use.fence, token: use.token };
    return this.#withFolder(async () => {
      if (await createFile(file, next)) return undefined;
      const previous = await useIn(file);
      const refusal = previous === undefined ? undefined : reuseRefusal(previous, use);
      if (refusal === undefined) await write(file, next);
      return refusal;
    });
  }

  /** Records that an attempt has ended. Throws `AUDIT_UNAVAILABLE`. */
  end(name: string, use: PastUse): Promise<void> {
    const file = this.#file(name);
    return this.#withFolder(async () => {
      const record = endedUse(use, use.ended ? undefined : await useIn(file));
      if (record !== undefined) await write(file, record);
    });
  }

  async #withFolder<T>(note: () => Promise<T>): Promise<T> {
    try {
      // The folder is created each time, because a person may remove it while the worker runs.
      await mkdir(this.#folder, { recursive: true, mode: 0o700 });
      this.#pruned ??= this.#prune().catch(() => {});
      await this.#pruned;
      return await note();
    } catch (error) {
      const { code = String(error) } = error as NodeJS.ErrnoException;
      throw new PawlError('AUDIT_UNAVAILABLE', `This worker cannot note which approvals were used: ${code}.`, {
        cause: error,
      });
    }
  }

  /** Removes records that are older than any valid signature. */
  async #prune(): Promise<void> {
    for (const name of await readdir(this.#folder)) {
      const file = join(this.#folder, name);
      const { mtimeMs } = await stat(file).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }));
      if (mtimeMs < Date.now() - RETENTION_MS) await unlink(file).catch(() => {});
    }
  }

  #file(name: string): string {
    return join(this.#folder, digest(name));
  }
}

/** The use in a file; undefined when the file does not exist. */
async function useIn(file: string): Promise<Use | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const { state, fence, token } = JSON.parse(text) as Use;
    if (STATES.includes(state) && Number.isFinite(fence)) return { state, fence, token };
  } catch {
    // As below.
  }
  // A power failure or a full disk truncated the file, so its attempt and that attempt's outcome are unknown.
  return { state: 'running', fence: 0, token: '' };
}

/** Writes a temporary file beside the target. It is linked or renamed when complete, so that no process reads a partial file. */
async function writeTemporary(file: string, use: Use): Promise<string> {
  const temporary = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`;
  try {
    await writeFile(temporary, JSON.stringify(use), { mode: 0o600, flush: true });
  } catch (error) {
    await unlink(temporary).catch(() => {});
    throw error;
  }
  return temporary;
}

/** Creates the file. False when it exists already. */
async function createFile(file: string, use: Use): Promise<boolean> {
  const temporary = await writeTemporary(file, use);
  try {
    await link(temporary, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return false;
  } finally {
    await unlink(temporary).catch(() => {});
  }
}

async function write(file: string, use: Use): Promise<void> {
  await rename(await writeTemporary(file, use), file);
}
