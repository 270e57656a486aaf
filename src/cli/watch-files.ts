/** Tells when files are edited, for development. */
import { type FSWatcher, watch } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';

/** Editors write a file in several steps. */
const SETTLE_MS = 150;

/**
 * Calls back with the file that changed, once for each edit. Folders are watched, not files: editors replace files. Stop it by what it
 * returns.
 */
export function watchFiles(files: readonly string[], cwd: string, onChange: (file: string) => void): () => void {
  const timers = new Map<string, NodeJS.Timeout>();
  const watchers: FSWatcher[] = [];
  const byFolder = Map.groupBy(files, (file) => dirname(resolve(cwd, file)));
  for (const [folder, inFolder] of byFolder) {
    const watcher = watch(folder, (_event, name) => {
      const file = inFolder.find((each) => basename(each) === name);
      if (file === undefined) return;
      clearTimeout(timers.get(file));
      timers.set(
        file,
        setTimeout(() => onChange(file), SETTLE_MS),
      );
    });
    // A folder that is removed is watched no longer; the workers keep the tools that they have.
    watcher.on('error', () => watcher.close());
    watchers.push(watcher);
  }
  return () => {
    for (const watcher of watchers) watcher.close();
    for (const timer of timers.values()) clearTimeout(timer);
  };
}
