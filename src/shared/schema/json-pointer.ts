/** JSON pointers (RFC 6901), as references in schemas and faults of validators hold them. */

/** What a step of a pointer names. */
export function unescaped(step: string): string {
  return step.replaceAll('~1', '/').replaceAll('~0', '~');
}

/** The same of a step that stands in an address. What is no percent-encoding is taken as it is. */
export function decoded(step: string): string {
  try {
    return unescaped(decodeURIComponent(step));
  } catch {
    return unescaped(step);
  }
}
