/** An object of which JavaScript makes no text, as any JSON may hold it. */
export const NO_TEXT = { toString: 1, valueOf: 1, toJSON: 1 };

/** The value with each of its parts, and itself, replaced by that object. */
export function* withOddParts(value: unknown): Generator<unknown> {
  yield NO_TEXT;
  if (typeof value !== 'object' || value === null) return;
  for (const [name, member] of Object.entries(value))
    for (const part of withOddParts(member))
      yield Array.isArray(value) ? value.with(Number(name), part) : { ...value, [name]: part };
}
