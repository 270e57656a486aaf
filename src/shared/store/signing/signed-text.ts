/** What is stored as one text: a seal, a space, and the JSON that it is about. */
import type { Seals } from '../../signing/signatures.ts';

export function sealedText(value: object, seal: (text: string) => string): string {
  const text = JSON.stringify(value);
  return `${seal(text)} ${text}`;
}

/** The seal of a stored text, and what it is about. A text without one has the empty seal. */
export function splitSealed(stored: string): { readonly seal: string; readonly text: string } {
  const end = stored.startsWith('{') ? 0 : stored.indexOf(' {');
  return { seal: stored.slice(0, Math.max(0, end)), text: stored.slice(end).trimStart() };
}

/** Undefined when the seal does not hold: nobody with a key wrote that. So it is for what is no JSON, which any writer can store. */
export function openedText<Value>(stored: string, holds: (text: string, seal: string) => boolean): Value | undefined {
  const { seal, text } = splitSealed(stored);
  return holds(text, seal) ? (parseJson(text) as Value | undefined) : undefined;
}

/** Undefined for what is no JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Of a message, `about`: whom it is for, or what it is about. */
export function sealedMessage(seals: Seals, about: string, message: object): string {
  return sealedText(message, (text) => seals.message(about, text));
}

export function openedMessage<Value>(seals: Seals, about: string, stored: string): Value | undefined {
  return openedText(stored, (text, seal) => seals.isMessage(about, text, seal));
}
