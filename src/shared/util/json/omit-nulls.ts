/** For protocols in which null means that an optional member is absent. */

const MAX_DEPTH = 64;

/** Removes nulls, except in members that are kept as they are. */
export function omitNulls(
  value: unknown,
  isKept: (name: string, member: unknown) => boolean = () => false,
  depth = 0,
): unknown {
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return value;
  const read = (member: unknown) => omitNulls(member, isKept, depth + 1);
  if (Array.isArray(value)) return value.filter((entry) => entry !== null).map(read);
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, member]) => {
      if (isKept(name, member)) return [[name, member]];
      return member === null ? [] : [[name, read(member)]];
    }),
  );
}
