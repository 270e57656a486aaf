/**
 * Which approvals were used, written down outside of Redis: whoever can put Redis back to an earlier state, or copy an approved call's
 * record, gets no second run out of one approval. One file for each, in the data folder that the workers of a machine share.
 */
import { mkdir, open, readdir, readFile, rename, stat, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { digest } from '../shared/fingerprint.ts';

/**
 * running  an attempt may have had its effect
 * free     the last attempt ended in a way that lets another one follow
 * ended    the call has its outcome
 */
export interface Use {
  readonly state: 'running' | 'free' | 'ended';
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

const KEPT_MS = 8 * 24 * 3_600_000;

export class UsedApprovals {
  readonly #folder: string;
  #ready: Promise<void> | undefined;

  constructor(dataDir: string) {
    this.#folder = join(dataDir, 'used-approvals');
  }

  /** Makes the folder, and forgets what is older than anything that a signature still covers. */
  #prepare(): Promise<void> {
    this.#ready ??= (async () => {
      await mkdir(this.#folder, { recursive: true, mode: 0o700 });
      for (const name of await readdir(this.#folder)) {
        const file = join(this.#folder, name);
        const { mtimeMs } = await stat(file).catch(() => ({ mtimeMs: Number.POSITIVE_INFINITY }));
        if (mtimeMs < Date.now() - KEPT_MS) await unlink(file).catch(() => {});
      }
    })();
    return this.#ready;
  }

  /** Writes down that an attempt uses an approval; says why it may not. */
  async begin(name: string, use: NextUse): Promise<string | undefined> {
    await this.#prepare();
    const file = this.#file(name);
    const next: Use = { state: 'running', fence: use.fence, token: use.token };
    try {
      const handle = await open(file, 'wx', 0o600);
      try {
        await handle.writeFile(JSON.stringify(next));
        await handle.sync();
      } finally {
        await handle.close();
      }
      return undefined;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const before = JSON.parse(await readFile(file, 'utf8')) as Use;
    const why = whyNotAgain(before, use);
    if (why === undefined) await this.#write(file, next);
    return why;
  }

  async end(
    name: string,
    use: { readonly fence: number; readonly token: string; readonly ended: boolean },
  ): Promise<void> {
    const { fence, token, ended } = use;
    await this.#write(this.#file(name), { state: ended ? 'ended' : 'free', fence, token });
  }

  #file(name: string): string {
    return join(this.#folder, digest(name));
  }

  async #write(file: string, use: Use): Promise<void> {
    const aside = `${file}.${process.pid}.${use.fence}`;
    await writeFile(aside, JSON.stringify(use), { mode: 0o600, flush: true });
    await rename(aside, file);
  }
}
