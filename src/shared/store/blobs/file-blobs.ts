/**
 * Large values in files, one for each part. A part is written to a temporary file, synced and renamed, so that a crash leaves the whole part
 * or none. All processes of a fleet need the same folder: on one machine, or on a shared file system.
 */
import { createHash, randomUUID } from 'node:crypto';
import { accessSync, constants, mkdirSync } from 'node:fs';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { PawlError, reasonOf } from '../../errors/failure.ts';
import type { BlobStore } from './blob-store.ts';

const UNFINISHED = '.unfinished';
/** Parts are written concurrently, in any order: this many absent parts in a row mark the end. */
const MAX_ABSENT_PARTS = 8;

export class FileBlobs implements BlobStore {
  readonly kind = 'file';
  readonly #folder: string;

  /** Makes the folder. Throws `CONFIGURATION` when it cannot be written. */
  constructor(folder: string) {
    this.#folder = folder;
    try {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      accessSync(folder, constants.R_OK | constants.W_OK);
    } catch (error) {
      throw new PawlError(
        'CONFIGURATION',
        `blobStore: expected a folder that can be written, and ${folder} cannot: ${reasonOf(error)}`,
      );
    }
  }

  async put(name: string, part: number, bytes: Buffer): Promise<void> {
    const folder = this.#folderOf(name);
    const unfinished = join(folder, `${randomUUID()}${UNFINISHED}`);
    try {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      const file = await open(unfinished, 'wx', 0o600);
      try {
        await file.writeFile(bytes);
        await file.datasync();
      } finally {
        await file.close();
      }
      await rename(unfinished, this.#fileOf(name, part));
      await syncFolder(folder);
    } catch (error) {
      await rm(unfinished, { force: true }).catch(() => {});
      throw unavailable('write to', folder, error);
    }
  }

  async get(name: string, part: number): Promise<Buffer | null> {
    try {
      return await readFile(this.#fileOf(name, part));
    } catch (error) {
      if (isAbsent(error)) return null;
      throw unavailable('read from', this.#folder, error);
    }
  }

  async remove(name: string): Promise<void> {
    for (let part = 0, absent = 0; absent < MAX_ABSENT_PARTS; part += 1) {
      try {
        await rm(this.#fileOf(name, part));
        absent = 0;
      } catch (error) {
        if (!isAbsent(error)) throw unavailable('remove from', this.#folder, error);
        absent += 1;
      }
    }
  }

  async *names(beforeMs: number): AsyncGenerator<string, void, undefined> {
    for (const folder of await namesIn(this.#folder)) {
      const names = new Set<string>();
      for (const file of await namesIn(join(this.#folder, folder))) {
        const path = join(this.#folder, folder, file);
        const writtenAtMs = (await stat(path).catch(() => undefined))?.mtimeMs;
        if (writtenAtMs === undefined || writtenAtMs >= beforeMs) continue;
        // A process died while it wrote this.
        if (file.endsWith(UNFINISHED)) await rm(path, { force: true });
        else names.add(nameOf(file));
      }
      yield* names;
    }
  }

  /** Values are spread over subfolders, because operations in a folder with many files are slow. */
  #folderOf(name: string): string {
    return join(this.#folder, createHash('sha256').update(name).digest('hex').slice(0, 2));
  }

  #fileOf(name: string, part: number): string {
    return join(this.#folderOf(name), `${encodeURIComponent(name)}.${part}`);
  }
}

function nameOf(file: string): string {
  return decodeURIComponent(file.slice(0, file.lastIndexOf('.')));
}

async function namesIn(folder: string): Promise<readonly string[]> {
  return readdir(folder).catch((error: unknown) => {
    if (isAbsent(error) || (error as NodeJS.ErrnoException).code === 'ENOTDIR') return [];
    throw unavailable('list', folder, error);
  });
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function isAbsent(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}

function unavailable(step: string, folder: string, cause: unknown): PawlError {
  return new PawlError('BACKEND_UNAVAILABLE', `The blob store cannot ${step} ${folder}: ${reasonOf(cause)}`, {
    cause,
  });
}
