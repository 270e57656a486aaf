/** Watches files for edits, for development. */
import { type FSWatcher, watch } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** Editors write a file in several steps. */
const SETTLE_MS = 150;

/** Calls back with the path of a file that changed, once for each edit. Folders are watched, not files: editors replace files. */
export class FileWatcher {
  readonly #onChange: (path: string) => void;
  readonly #folders = new Map<string, { readonly watcher: FSWatcher; readonly names: Set<string> }>();
  readonly #timers = new Map<string, NodeJS.Timeout>();

  constructor(onChange: (path: string) => void) {
    this.#onChange = onChange;
  }

  /** Watches a file; `path` is absolute. */
  add(path: string): void {
    const folder = dirname(path);
    const names = this.#folders.get(folder)?.names ?? this.#open(folder);
    names.add(basename(path));
  }

  #open(folder: string): Set<string> {
    const names = new Set<string>();
    const watcher = watch(folder, (_event, name) => {
      if (name !== null && names.has(name)) this.#changed(join(folder, name));
    });
    // A removed folder is no longer watched; the workers keep their tools.
    watcher.on('error', () => watcher.close());
    this.#folders.set(folder, { watcher, names });
    return names;
  }

  #changed(path: string): void {
    clearTimeout(this.#timers.get(path));
    this.#timers.set(
      path,
      setTimeout(() => this.#onChange(path), SETTLE_MS),
    );
  }

  close(): void {
    for (const { watcher } of this.#folders.values()) watcher.close();
    for (const timer of this.#timers.values()) clearTimeout(timer);
  }
}
