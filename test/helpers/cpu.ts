/** The processor time that this process spends on `work`, in milliseconds. Unlike the clock, it stands still when the process does. */
export async function cpuMsOf(work: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000;
}
