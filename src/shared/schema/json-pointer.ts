/** JSON pointers (RFC 6901), as schemas' references and validators' errors use them. */

/** The name that a step of a pointer stands for. */
export function unescaped(step: string): string {
  return step.replaceAll('~1', '/').replaceAll('~0', '~');
}

/** The name in a step of an address. A step that is not percent-encoded is taken as it is. */
export function decoded(step: string): string {
  try {
    return unescaped(decodeURIComponent(step));
  } catch {
    return unescaped(step);
  }
}
