/** Whether the text matches the pattern, in which `*` stands for any text. */
export function matches(pattern: string, text: string): boolean {
  if (!pattern.includes('*')) return pattern === text;
  const [first = '', ...rest] = pattern.split('*');
  if (!text.startsWith(first)) return false;
  let offset = first.length;
  for (const [index, part] of rest.entries()) {
    if (index === rest.length - 1) return text.length - part.length >= offset && text.endsWith(part);
    const found = text.indexOf(part, offset);
    if (found < 0) return false;
    offset = found + part.length;
  }
  return true;
}
