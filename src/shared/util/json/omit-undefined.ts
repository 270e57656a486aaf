type MayBeUndefined<T> = { [K in keyof T]-?: undefined extends T[K] ? K : never }[keyof T];
type Flat<T> = { [K in keyof T]: T[K] };

/** The members of an object; those that may be undefined may be absent instead. */
export type Defined<T> = Flat<Omit<T, MayBeUndefined<T>> & { [K in MayBeUndefined<T>]?: Exclude<T[K], undefined> }>;

const DATA = { configurable: true, enumerable: true, writable: true };

/** Removes the members that are undefined, so that a spread erases no default and a record holds only known members. */
export function defined<const T extends object>(value: T): Defined<T> {
  const entries = value as Readonly<Record<string, unknown>>;
  const kept: Record<string, unknown> = {};
  for (const name of Object.keys(entries)) {
    const member = entries[name];
    if (member === undefined) continue;
    // JSON may have such a member. Assigned, it would become the prototype.
    if (name === '__proto__') Object.defineProperty(kept, name, { ...DATA, value: member });
    else kept[name] = member;
  }
  return kept as Defined<T>;
}
