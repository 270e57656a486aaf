/** JSON pointers (RFC 6901), as schemas' references and validators' errors use them. */
import { orUndefined } from '../util/or-undefined.ts';

/** The member name of one step of a pointer. */
export function unescapeStep(step: string): string {
  return step.replaceAll('~1', '/').replaceAll('~0', '~');
}

/** The member name of one step of a URL's fragment. A step that is not valid percent-encoding is used as it is. */
export function decodeStep(step: string): string {
  return unescapeStep(orUndefined(() => decodeURIComponent(step)) ?? step);
}
