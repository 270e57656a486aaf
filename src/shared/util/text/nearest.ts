/** Finds what a misspelt name may have meant. */
import { startOf } from './text-cut.ts';

/** Longer names are compared by their beginning. */
const MAX_WORD_LENGTH = 128;
/** A shorter name that is a part of another one says nothing. */
const MIN_PART_LENGTH = 3;

/** `did you mean a or b?`; empty when no candidate resembles the word. */
export function didYouMean(word: string, candidates: readonly string[]): string {
  const suggestions = nearest(word, candidates);
  return suggestions.length === 0 ? '' : `did you mean ${suggestions.join(' or ')}?`;
}

export function capitalized(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Up to three candidates that resemble the word most, the best first; none when all are far off, or have no letter in common with it. */
export function nearest(word: string, candidates: readonly string[]): string[] {
  const lowerWord = startOf(word, MAX_WORD_LENGTH).toLowerCase();
  return candidates
    .map((candidate) => ({
      candidate,
      distance: editDistance(lowerWord, candidate.toLowerCase()),
      within: isPart(candidate.toLowerCase(), lowerWord) || isPart(lowerWord, candidate.toLowerCase()),
      length: Math.max(lowerWord.length, candidate.length),
    }))
    .filter(
      ({ distance, within, length }) => within || distance <= Math.min(Math.max(2, Math.floor(length / 3)), length - 1),
    )
    .sort((a, b) => a.distance - b.distance)
    .slice(0, 3)
    .map(({ candidate }) => candidate);
}

function isPart(part: string, name: string): boolean {
  return part.length >= MIN_PART_LENGTH && name.includes(part);
}

function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let row = 1; row <= a.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= b.length; column += 1) {
      const substitution = (previous[column - 1] ?? 0) + (a[row - 1] === b[column - 1] ? 0 : 1);
      current.push(Math.min(substitution, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1));
    }
    previous = current;
  }
  return previous[b.length] ?? 0;
}
