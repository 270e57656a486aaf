/** Faults that end several calls at once, such as the end of a server that they use. Each counts once against their circuits. */

/** The faults, each with whether one of its calls was counted. */
const faults = new WeakMap<object, boolean>();

/** Notes an error that several calls may fail with. */
export function noteSharedFault<Fault extends Error>(error: Fault): Fault {
  if (!faults.has(error)) faults.set(error, false);
  return error;
}

/** Whether the call that failed with this error is the first, or the only one, to be counted. The next call's is not. */
export function isFirstOfFault(error: unknown): boolean {
  const isCounted = faults.get(error as object);
  if (isCounted === false) faults.set(error as object, true);
  return isCounted !== true;
}
