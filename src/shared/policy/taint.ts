/** Taint: the sources outside of the fleet that a call's parameters may come from. */
import type { SessionRecord } from '../sessions/session.ts';
import type { PolicyRequest } from './policy-request.ts';

export function isTaintRelevant({ tool, taint = [] }: PolicyRequest): boolean {
  return taint.length > 0 && tool.effects !== 'none';
}

/**
 * The sources that a call's parameters may come from: tags of the request such as `taint:web`, and the text from outside that the session
 * had read when the call was made.
 */
export function taintOf(
  tags: readonly string[] | undefined,
  { taint = [] }: Pick<SessionRecord, 'taint'> = {},
  submittedAtMs = Number.POSITIVE_INFINITY,
): readonly string[] {
  if (tags === undefined && taint.length === 0) return [];
  const taggedSources = (tags ?? []).filter((tag) => tag.startsWith('taint:')).map((tag) => tag.slice('taint:'.length));
  const readSources = taint.filter(({ atMs }) => atMs <= submittedAtMs).map(({ source }) => source);
  return [...new Set([...taggedSources, ...readSources])];
}
