/** What must not outlive the rig, however it ends: processes and folders. */
const remains = new Set<() => void>();

process.on('exit', () => {
  for (const clear of remains) clear();
});

/** `clear` runs when this process exits first. Returns what takes it back. */
export function clearedAtExit(clear: () => void): () => void {
  remains.add(clear);
  return () => void remains.delete(clear);
}
