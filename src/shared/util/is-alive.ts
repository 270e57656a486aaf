/** Whether a process of this machine runs, also another user's. A zombie counts, although it has ended. */
export function isAlive(processId: number): boolean {
  try {
    return process.kill(processId, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
