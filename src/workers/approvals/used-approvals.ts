/**
 * Used approvals, recorded outside of Redis. So an attacker who restores an earlier state of Redis, or copies an approved call's record,
 * gets no second run out of one approval. One file for each, in the data folder that the workers of a machine share.
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

/** An attempt that wants to use an approval. */
export interface NextUse {
  readonly fence: number;
  readonly token: string;
  readonly mayRepeat: boolean;
}

/** Says why an approval that was used before may not be used by this attempt; undefined when it may, or is. */
export function whyNotAgain(before: Use, use: NextUse): string | undefined {
  if (before.token === use.token && before.state === 'running') return undefined;
  if (before.state === 'ended') return 'it was used already';
  if (before.fence >= use.fence) return 'an attempt under it began before this one';
  if (before.state === 'running' && !use.mayRepeat) return 'an attempt under it began and left no record';
  return undefined;
}

/** An attempt under an approval that is over, whether it came to use it or not. */
export interface PastUse {
  readonly fence: number;
  readonly token: string;
  readonly ended: boolean;
}

/**
 * The record that an attempt leaves when it is over; undefined for none. An attempt that ended before it used the approval frees
 * nothing, because the stored record belongs to another attempt.
 */
export function leftBy({ fence, token, ended }: PastUse, before: Use | undefined): Use | undefined {
  if (ended) return { state: 'ended', fence, token };
  return before?.state === 'running' && before.token === token ? { state: 'free', fence, token } : undefined;
}

const KEPT_MS = 8 * 24 * 3_600_000;

export class UsedApprovals {
  readonly #folder: string;
  #forgotten: Promise<void> | undefined;

  constructor(dataDir: string) {
    this.#folder = join(dataDir, 'used-approvals');
  }

  /** Writes down that an attempt uses an approval; says why it may not. Throws `AUDIT_UNAVAILABLE`. */
  begin(name: string, use: NextUse): Promise<string | undefined> {
    const file = this.#file(name);
    const next: Use = { state: 'running', fence: use.fence, token: use.token };
    return this.#noted(async () => {
      if (await firstWritten(file, next)) return undefined;
      const before = await useIn(file);
      const why = before === undefined ? undefined : whyNotAgain(before, use);
      if (why === undefined) await write(file, next);
      return why;
    });
  }

  /** Writes down that an attempt is over. Throws `AUDIT_UNAVAILABLE`. */
  end(name: string, use: PastUse): Promise<void> {
    const file = this.#file(name);
    return this.#noted(async () => {
      const left = leftBy(use, use.ended ? undefined : await useIn(file));
      if (left !== undefined) await write(file, left);
    });
  }

  async #noted<T>(note: () => Promise<T>): Promise<T> {
    try {
      // The folder is created each time, because a person may remove it while the worker runs.
      await mkdir(this.#folder, { recursive: true, mode: 0o700 });
      this.#forgotten ??= this.#forget().catch(() => {});
      await this.#forgotten;
      return await note();
    } catch (error) {
      const { code = String(error) } = error as NodeJS.ErrnoException;
      throw new PawlError('AUDIT_UNAVAILABLE', `This worker cannot note which approvals were used: ${code}.`, {
        cause: error,
      });
    }
  }

  /** Forgets what is older than anything that a signature still covers. */
  async #forget(): Promise<void> {
    for (const name of await readdir(this.#folder)) {
      const file = join(this.#folder, name);
      const { mtimeMs } = await stat(file).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }));
      if (mtimeMs < Date.now() - KEPT_MS) await unlink(file).catch(() => {});
    }
  }

  #file(name: string): string {
    return join(this.#folder, digest(name));
  }
}

/** Undefined when there is none. */
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
  // A power failure or a full disk left it, so its attempt and that attempt's outcome are unknown.
  return { state: 'running', fence: 0, token: '' };
}

/** Writes a file beside its place. It is linked or moved there whole, so that no process reads a half of it. */
async function writeAside(file: string, use: Use): Promise<string> {
  const aside = `${file}.${process.pid}.${randomBytes(4).toString('hex')}`;
  try {
    await writeFile(aside, JSON.stringify(use), { mode: 0o600, flush: true });
  } catch (error) {
    await unlink(aside).catch(() => {});
    throw error;
  }
  return aside;
}

/** False when there is one already. */
async function firstWritten(file: string, use: Use): Promise<boolean> {
  const aside = await writeAside(file, use);
  try {
    await link(aside, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return false;
  } finally {
    await unlink(aside).catch(() => {});
  }
}

async function write(file: string, use: Use): Promise<void> {
  await rename(await writeAside(file, use), file);
}
