/** The words of a text. A long list of names is plainer as a text than with a line for each name. */
export function words(text: string): readonly string[] {
  return text.trim().split(/\s+/);
}
