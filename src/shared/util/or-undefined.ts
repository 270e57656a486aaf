/** The value that a function returns; undefined where it throws, whatever the reason. */
export function orUndefined<Value>(read: () => Value): Value | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
