/** A pattern that matches exactly this text. Node 22 has no `RegExp.escape`. */
export function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
