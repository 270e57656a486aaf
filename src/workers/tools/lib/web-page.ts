/**
 * Extracts the main content of a web page, as text or Markdown. The libraries are loaded at the first page, because
 * few workers need them.
 */
import type TurndownService from 'turndown';

export interface ReadablePage {
  readonly content: string;
  readonly title?: string;
  readonly publishedAt?: string;
  /** The libraries that find the main content are not installed, so the content is the plain text of the whole page. */
  readonly isWholePage?: boolean;
}

/** A page of more elements, or of deeper ones, is not searched for its main content, which could block the worker for minutes. */
const MAX_ELEMENTS = 20_000;
const MAX_DEPTH = 200;
/** How much of a page is searched for its title when it is read as plain text. */
const MAX_TITLE_OFFSET = 20_000;
/** Elements without content or without an end tag. */
const LEAF_ELEMENTS =
  /^(area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr|p|li|dt|dd|tr|td|th|thead|tbody|option)$/i;

/** The used part of the DOM. linkedom's own types describe more than it has and less than is needed. */
interface Page {
  readonly body: { readonly innerHTML: string } | null;
  querySelector(selector: string): PageElement | null;
  querySelectorAll(selector: string): Iterable<PageElement>;
}

interface PageElement {
  readonly textContent: string | null;
  querySelector(selector: string): PageElement | null;
  querySelectorAll(selector: string): Iterable<PageElement>;
  closest(selector: string): PageElement | null;
  getAttribute(name: string): string | null;
  setAttribute(name: string, value: string): void;
  getAttributeNames(): Iterable<string>;
  removeAttribute(name: string): void;
  remove(): void;
}

export async function readable(
  html: string,
  url: string,
  format: 'markdown' | 'text',
  load: typeof pageLibraries = pageLibraries,
): Promise<ReadablePage> {
  if (isTooComplex(html)) return { content: stripTags(html) };
  const libraries = await load().catch(() => undefined);
  if (libraries === undefined) return plainTextPage(html);
  const [{ parseHTML }, { Readability }, { default: Turndown }] = libraries;
  try {
    // Without these tags linkedom takes the first element for the whole document.
    const { document } = parseHTML(/<html[\s>]/i.test(html) ? html : `<html><body>${html}</body></html>`);
    const page: Page = document;
    for (const each of page.querySelectorAll('script, style, noscript, template, iframe, object, embed')) each.remove();
    if (UPPER_CASE_ATTRIBUTE.test(html)) lowerAttributeNames(page);
    const base = baseUrl(page.querySelector('base[href]')?.getAttribute('href'), url);
    makeLinksAbsolute(page, base);
    const title = page.querySelector('title')?.textContent?.trim();
    // Readability destroys the document, so the whole content is copied first, for pages without a main content.
    const fullHtml = page.body?.innerHTML ?? html;
    const article = new Readability(document, { charThreshold: 200 }).parse();
    const main = article?.content ?? fullHtml;
    const markdownOf = (part: string): string => {
      const { document: result } = parseHTML(`<html><body>${part}</body></html>`);
      // Readability gives images that load late their addresses.
      makeLinksAbsolute(result, base);
      const options = { headingStyle: 'atx', codeBlockStyle: 'fenced', bulletListMarker: '-' } as const;
      return withTables(withMarks(new Turndown(options))).turndown(result.body);
    };
    const content = format === 'text' ? stripTags(main) : markdownOf(main);
    if (content.trim() === '') return { content: stripTags(html) };
    const pageTitle = article?.title || title;
    return {
      content: content.replaceAll(/\n{3,}/g, '\n\n').trim(),
      ...(pageTitle ? { title: pageTitle } : {}),
      ...(article?.publishedTime ? { publishedAt: article.publishedTime } : {}),
    };
  } catch (error) {
    // Elements are nested so deeply that the libraries overflow the stack.
    if (error instanceof RangeError) return { content: stripTags(html) };
    throw error;
  }
}

/** Rejects where they are not installed. */
function pageLibraries() {
  return Promise.all([import('linkedom'), import('@mozilla/readability'), import('turndown')]);
}

/** The plain text of a page, without the libraries that find its main content. */
function plainTextPage(html: string): ReadablePage {
  const [, title = ''] = /<title\b[^>]{0,200}>([^<]{1,1000})/i.exec(html.slice(0, MAX_TITLE_OFFSET)) ?? [];
  const content = stripTags(html.replace(/<title\b[^>]{0,200}>[^<]{0,1000}/i, ''));
  return { content, isWholePage: true, ...(title.trim() === '' ? {} : { title: stripTags(title) }) };
}

/** Elements are counted in the source, because parsing is the slow part. */
function isTooComplex(html: string): boolean {
  let [elements, depth] = [0, 0];
  // Lone "<" and "&" and spaces that HTML does not collapse cost the libraries as much as elements do.
  for (const [, slash, name] of html.matchAll(/<(\/?)([a-z][a-z0-9-]*)|[<&]|[^\S\t\n\f\r ]/gi)) {
    if (name === undefined || LEAF_ELEMENTS.test(name)) elements += 1;
    else if (slash === '/') depth = Math.max(0, depth - 1);
    else {
      elements += 1;
      depth += 1;
    }
    if (elements > MAX_ELEMENTS || depth > MAX_DEPTH) return true;
  }
  return false;
}

/** Returns the base address of a page: its first `<base href>`, or its own address. */
export function baseUrl(href: string | null | undefined, url: string): string {
  if (href === null || href === undefined || !URL.canParse(href, url)) return url;
  const base = new URL(href, url);
  return ['data:', 'javascript:'].includes(base.protocol) ? url : base.href;
}

const UPPER_CASE_ATTRIBUTE = /\s[a-z-]{0,40}[A-Z][\w-]{0,40}\s{0,4}=/;

/** linkedom keeps the case of attribute names, which has no meaning in HTML. */
function lowerAttributeNames(page: Page): void {
  for (const element of page.querySelectorAll('*'))
    for (const name of [...element.getAttributeNames()]) {
      const lower = name.toLowerCase();
      if (name === lower) continue;
      const value = element.getAttribute(name) ?? '';
      element.removeAttribute(name);
      if (element.getAttribute(lower) === null) element.setAttribute(lower, value);
    }
}

/** A comma within an address is a part of it. One at its end separates it from the next. */
const FIRST_OF_SRCSET = /(?!,)\S*[^\s,]/;

function makeLinksAbsolute(page: Page, url: string): void {
  for (const image of page.querySelectorAll('img[srcset]:not([src]), img[srcset][src=""]'))
    image.setAttribute('src', FIRST_OF_SRCSET.exec(image.getAttribute('srcset') ?? '')?.[0] ?? '');
  for (const [selector, name] of [
    ['a[href]', 'href'],
    ['img[src]', 'src'],
  ] as const) {
    for (const element of page.querySelectorAll(selector)) {
      const value = element.getAttribute(name) ?? '';
      if (URL.canParse(value, url) && !value.startsWith('#')) element.setAttribute(name, new URL(value, url).href);
    }
  }
}

/** Without their marks, 10<sup>6</sup> would be 106, and a price that is struck out the present one. */
function withMarks(turndown: TurndownService): TurndownService {
  turndown.addRule('exponent', {
    filter: ['sup'],
    replacement: (content) => (EXPONENT.test(content) ? `^${content}` : content),
  });
  turndown.addRule('struck', {
    filter: ['del', 's'],
    replacement: (content) => (content === '' ? '' : `~~${content}~~`),
  });
  return turndown;
}

const EXPONENT = /^[-+\u2212]?\d/;

/** A Markdown table has one line per row. Cells of several lines, and tables that only lay out a page, are left as they are. */
const NO_CELL = 'table, pre, ul, ol, dl, blockquote, h1, h2, h3, h4, h5, h6';

function withTables(turndown: TurndownService): TurndownService {
  const checkedTables = new WeakMap<object, boolean>();
  const isData = (element: PageElement): boolean => {
    const table = element.closest('table');
    if (table === null) return false;
    const checked = checkedTables.get(table);
    if (checked !== undefined) return checked;
    const isPlain = table.querySelector(NO_CELL) === null;
    const rows = isPlain ? [...table.querySelectorAll('tr')] : [];
    const isDataTable = rows.length > 1 && rows.some((row) => [...row.querySelectorAll('th, td')].length > 1);
    checkedTables.set(table, isDataTable);
    return isDataTable;
  };
  const rule = (names: readonly string[], replacement: (content: string, element: PageElement) => string) =>
    turndown.addRule(names.join(), {
      filter: (node) => names.includes(node.nodeName.toLowerCase()) && isData(node as unknown as PageElement),
      replacement: (content, node) => replacement(content, node as unknown as PageElement),
    });
  rule(['th', 'td'], (content) => ` ${content.trim().replaceAll(/\s+/g, ' ').replaceAll('|', '\\|')} |`);
  rule(['tr'], (content, row) => {
    const isFirst = row.closest('table')?.querySelector('tr') === row;
    const columns = [...row.querySelectorAll('th, td')].length;
    return `\n|${content}${isFirst ? `\n|${' --- |'.repeat(columns)}` : ''}`;
  });
  rule(['thead', 'tbody', 'tfoot'], (content) => content);
  rule(['caption'], (content) => `${content.trim()}\n\n`);
  rule(['table'], (content) => `\n\n${content.trim()}\n\n`);
  return turndown;
}

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: ' ' };

/**
 * Returns the text between the tags. Each pattern also matches to the end of the text when its end is missing. A
 * pattern that failed there would be tried again at every next tag, and a page of nothing but "<" would block the
 * worker for hours.
 */
export function stripTags(html: string): string {
  return html
    .replaceAll(/<(script|style|noscript|template)\b[^>]*(?:>[\s\S]*?(?:<\/\1\s*>|$)|$)/gi, ' ')
    .replaceAll(/<!--[\s\S]*?(?:-->|$)/g, ' ')
    .replaceAll(
      /<\/?(p|div|br|li|ul|ol|tr|table|h[1-6]|section|article|header|footer|pre|blockquote)\b[^>]*>?/gi,
      (tag) => (tag.endsWith('>') ? '\n' : tag),
    )
    .replaceAll(/<sup\b[^>]*>(?=[-+\u2212]?\d)/gi, '^')
    .replaceAll(/<\/?t[dh]\b[^>]*>?/gi, (tag) => (tag.endsWith('>') ? ' ' : tag))
    .replaceAll(/<[^>]*>?/g, (tag) => (tag.endsWith('>') ? '' : tag))
    .replaceAll(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|(\w{1,8}));/gi, (entity, decimal, hex, name) => {
      if (name !== undefined) return ENTITIES[String(name).toLowerCase()] ?? entity;
      const code = decimal === undefined ? Number.parseInt(hex, 16) : Number(decimal);
      return code <= 0x10ffff ? String.fromCodePoint(code) : '';
    })
    .replaceAll(/[ \t]+/g, ' ')
    .replaceAll(/ ?\n ?/g, '\n')
    .replaceAll(/\n{3,}/g, '\n\n')
    .trim();
}
