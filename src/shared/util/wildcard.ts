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

/**
 * Normalises a host, or a pattern of hosts, as URLs do: a name in ASCII, an IPv6 address in brackets and in its shortest form. The port is
 * optional. Empty for a text that is no host.
 */
export function hostInUrl(text: string): string {
  const isAddress = /^[\da-f:.]*:[\da-f:.]*$/i.test(text) && URL.canParse(`http://[${text}]`);
  const [, host = '', port = ''] = /^(\[[^\]]*\]|[^:]*)(:\d+)?$/.exec(isAddress ? `[${text}]` : text) ?? [];
  const url = `http://${host}`;
  return !/[\s/?#@\\]/.test(host) && URL.canParse(url) ? `${new URL(url).hostname}${port}` : '';
}
