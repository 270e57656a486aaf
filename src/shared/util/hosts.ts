/** Hosts as URLs write them, so that two spellings of one host are equal. */

/**
 * Normalises a host, or a pattern of hosts: a name in ASCII, an IPv6 address in brackets and in its shortest form. The port is optional.
 * Empty for a text that is no host.
 */
export function hostInUrl(text: string): string {
  const isAddress = /^[\da-f:.]*:[\da-f:.]*$/i.test(text) && URL.canParse(`http://[${text}]`);
  const [, host = '', port = ''] = /^(\[[^\]]*\]|[^:]*)(:\d+)?$/.exec(isAddress ? `[${text}]` : text) ?? [];
  const url = `http://${host}`;
  return !/[\s/?#@\\]/.test(host) && URL.canParse(`${url}${port}`) ? `${new URL(url).hostname}${port}` : '';
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { 'https:': '443', 'wss:': '443', 'http:': '80', 'ws:': '80' };

/** The names that match a URL in a list of hosts: its host, without and with the port. */
export function hostNamesOf(url: URL): readonly string[] {
  const port = url.port || DEFAULT_PORTS[url.protocol];
  return [url.hostname, ...(port === undefined ? [] : [`${url.hostname}:${port}`])];
}
