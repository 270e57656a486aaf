/** The Docker command, for what testcontainers does not know. */
import { spawnSync } from 'node:child_process';

/** Answers standard output. Throws with what Docker said. */
export function docker(...args: readonly string[]): string {
  const run = spawnSync('docker', args, { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 });
  if (run.status !== 0) throw new Error(`docker ${args.join(' ')}: ${run.stderr || String(run.error)}`);
  return run.stdout;
}

/** Whether this machine has a daemon; says so when it has none. */
export function hasDocker(): boolean {
  const found = spawnSync('docker', ['info'], { stdio: 'ignore' }).status === 0;
  if (!found) console.warn('skipped: there is no Docker daemon here');
  return found;
}

/** Whether the image is here or can be pulled; says so when it is not. */
export function hasImage(image: string): boolean {
  const found = ['inspect', 'pull'].some(
    (way) =>
      spawnSync('docker', [way === 'pull' ? 'pull' : 'image', ...(way === 'pull' ? [image] : [way, image])], {
        stdio: 'ignore',
      }).status === 0,
  );
  if (!found) console.warn(`skipped: ${image} is not here and cannot be pulled`);
  return found;
}
