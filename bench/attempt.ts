/** A long record must not be lost to one part that fails: says so, lets the rest run, and the benchmark ends with exit code 1. */
export async function attempt<T>(what: string, run: () => Promise<T>): Promise<T | undefined> {
  try {
    return await run();
  } catch (error) {
    console.error(`${what} failed:`, error);
    process.exitCode = 1;
    return undefined;
  }
}
