/** Decodes a web document as browsers do, by the WHATWG's standards for HTML and encodings. */
import { orUndefined } from '../or-undefined.ts';

/** The bytes at the beginning in which a document may name its charset. Browsers read at least the first 1,024. */
const MAX_HEAD_BYTES = 2_048;
/** Below long scripts and styles, a name counts where the document is no UTF-8. Browsers start over there, too. */
const MAX_LATE_BYTES = 256 * 1024;
const HTML = /^text\/html$/;
const XML = /^(?:(?:text|application)\/|.+\+)xml$/;

/**
 * Decodes by the byte order mark, else by the header (`contentType`), else by the document itself: HTML names its charset in a `meta`
 * element, XML in its declaration, a style sheet in its first rule. A document that names no known charset is
 * UTF-8, or Windows-1252 if most of what is no ASCII in it is no UTF-8.
 */
export function decodeDocument(bytes: Uint8Array, contentType: string): string {
  const decoder =
    decoderFor(bomCharset(bytes)) ??
    decoderFor(charsetOf(contentType)) ??
    decoderFor(declaredCharset(bytes.subarray(0, MAX_HEAD_BYTES), contentType));
  const text = (decoder ?? new TextDecoder()).decode(bytes);
  if (decoder !== undefined || !isMostlyNoUtf8(bytes, text)) return text;
  const late = decoderFor(declaredCharset(bytes.subarray(0, MAX_LATE_BYTES), contentType));
  return (late ?? new TextDecoder('windows-1252')).decode(bytes);
}

/** A character that is cut at the end does not count. */
function isMostlyNoUtf8(bytes: Uint8Array, text: string): boolean {
  if (!text.includes('\ufffd')) return false;
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true });
    return false;
  } catch {
    return text.replaceAll(/[^\ufffd]/g, '').length * 2 > text.replaceAll(/[\0-\x7f]/g, '').length;
  }
}

/**
 * The type in a header that may hold several, joined, by the Fetch standard: the last one counts, with the charset that an equal one before
 * it names.
 */
export function lastContentType(header: string): string {
  const essenceOf = (type: string) => type.split(';')[0]?.trim().toLowerCase();
  return header.split(/,(?=\s*[\w.+-]+\/)/).reduce((before, type) => {
    const charset =
      charsetOf(type) === undefined && essenceOf(type) === essenceOf(before) ? charsetOf(before) : undefined;
    return charset === undefined ? type : `${type};charset=${charset}`;
  });
}

/** The `charset` parameter of a header, which may be in quotes. */
function charsetOf(contentType: string): string | undefined {
  const parameters = contentType.matchAll(/;\s*([^\s=;]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)(?:"|$)|([^\s;]*))/g);
  for (const [, name = '', quoted, plain = ''] of parameters)
    if (name.toLowerCase() === 'charset') return quoted?.replaceAll(/\\(.)/g, '$1') ?? plain.replaceAll("'", '');
  return undefined;
}

/** The kind of UTF-16 that a byte order mark shows. The mark of UTF-32 begins alike and goes on with zeros. */
export function utf16Of([first, second, third, fourth]: Uint8Array): 'utf-16le' | 'utf-16be' | undefined {
  if (first === 0xff && second === 0xfe) return third === 0 && fourth === 0 ? undefined : 'utf-16le';
  return first === 0xfe && second === 0xff ? 'utf-16be' : undefined;
}

function bomCharset(bytes: Uint8Array): string | undefined {
  const [first, second, third] = bytes;
  return first === 0xef && second === 0xbb && third === 0xbf ? 'utf-8' : utf16Of(bytes);
}

/** Undefined for an unknown label. */
function decoderFor(label: string | undefined) {
  return label === undefined ? undefined : orUndefined(() => new TextDecoder(label));
}

function declaredCharset(beginning: Uint8Array, contentType: string): string | undefined {
  const [type = ''] = contentType.toLowerCase().split(';');
  const head = Buffer.from(beginning).toString('latin1');
  if (HTML.test(type.trim())) return metaCharset(head) ?? xmlCharset(head);
  if (XML.test(type.trim())) return xmlCharset(head);
  return type.trim() === 'text/css' ? asciiCompatible(/^@charset "([^"]{1,100})";/.exec(head)?.[1]) : undefined;
}

/** A document whose label could be read as ASCII is not UTF-16, even if the label claims it. */
function asciiCompatible(label: string | undefined): string | undefined {
  const encoding = decoderFor(label)?.encoding;
  if (encoding === 'x-user-defined') return 'windows-1252';
  return encoding?.startsWith('utf-16') ? 'utf-8' : encoding;
}

function xmlCharset(head: string): string | undefined {
  if (head.startsWith('<\0?\0x\0')) return 'utf-16le';
  if (head.startsWith('\0<\0?\0x')) return 'utf-16be';
  const [declaration = ''] = /^<\?xml\s[^>]*>/.exec(head) ?? [];
  const [, double, single] = /\sencoding\s*=\s*(?:"([^"]*)"|'([^']*)')/.exec(declaration) ?? [];
  return asciiCompatible(double ?? single);
}

/** A quote opens a value only behind an equals sign, and a tag whose quote does not end lasts to the end. */
const COMMENT_OR_TAG =
  /<!--(?:>|->|[\s\S]*?(?:-->|$))|<(?:[!?]|\/(?![a-z]))[^>]*(?:>|$)|<(\/?[a-z][^\s/>]*)((?:[^>=]+|=(?:\s*"[^"]*"|\s*'[^']*'|(?!\s*["'])))*)(>|[\s\S]*)/gi;
const ATTRIBUTE = /([^\s/=>]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)))?/g;

/** The attributes of each tag of a name. Comments and other elements' attributes do not count. */
export function* attributesOf(html: string, tag: string): Generator<ReadonlyMap<string, string>> {
  for (const [, name = '', attributes = '', end] of html.matchAll(COMMENT_OR_TAG)) {
    if (name.toLowerCase() !== tag || end !== '>') continue;
    const values = new Map<string, string>();
    for (const [, attribute = '', double, single, plain] of attributes.matchAll(ATTRIBUTE))
      if (!values.has(attribute.toLowerCase())) values.set(attribute.toLowerCase(), double ?? single ?? plain ?? '');
    yield values;
  }
}

/** The charset of the first `meta` element that names one. */
function metaCharset(head: string): string | undefined {
  for (const values of attributesOf(head, 'meta')) {
    const isType = values.get('http-equiv')?.toLowerCase() === 'content-type';
    const [, double, single, plain] =
      /charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))/i.exec(isType ? (values.get('content') ?? '') : '') ?? [];
    const encoding = asciiCompatible(values.get('charset') ?? double ?? single ?? plain);
    if (encoding !== undefined) return encoding;
  }
  return undefined;
}
