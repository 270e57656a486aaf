/** Texts of a given length, made once, so that no side pays for making them. */
const texts = new Map<number, string>();

export function replyText(bytes: number): string {
  let text = texts.get(bytes);
  if (text === undefined) {
    text = 'x'.repeat(bytes);
    texts.set(bytes, text);
  }
  return text;
}
