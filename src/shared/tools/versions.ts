/** Semantic versions of tools: their order, and which version may run a call that another one validated. */

/** Negative when `a` is older than `b`. A pre-release comes before its release. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [numbersOf(a), numbersOf(b)];
  for (let index = 0; index < 3; index += 1) {
    const difference = (left[index] ?? 0) - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return Number(b.includes('-')) - Number(a.includes('-'));
}

/**
 * Whether a tool of one version runs calls that another version validated: the same version, or a compatible later one (the caret of
 * package managers: 1.2.0 runs calls of 1.1.0; neither 1.0.0 nor 2.0.0 does). The parameters are validated again.
 */
export function isCompatibleVersion(version: string, validated: string): boolean {
  if (version === validated) return true;
  if (version.includes('-') || validated.includes('-')) return false;
  const [candidate, required] = [numbersOf(version), numbersOf(validated)];
  const firstNonZero = required.findIndex((number) => number !== 0);
  const isSameMajor = candidate.slice(0, firstNonZero + 1).every((number, index) => number === required[index]);
  return firstNonZero !== -1 && isSameMajor && compareVersions(version, validated) > 0;
}

function numbersOf(version: string): number[] {
  return version.split(/[-+]/)[0]?.split('.').map(Number) ?? [];
}
