/** What is stored as one text: a seal, a space, and the JSON that it is about. */
import type { Signatures } from '../../signing/signatures.ts';

export function signedText(value: object, signature: (text: string) => string): string {
  const text = JSON.stringify(value);
  return `${signature(text)} ${text}`;
}

/** The seal of a stored text, and what it is about. A text without one has the empty seal. */
export function splitSealed(stored: string): { readonly signature: string; readonly text: string } {
  const end = stored.startsWith('{') ? 0 : stored.indexOf(' {');
  return { signature: stored.slice(0, Math.max(0, end)), text: stored.slice(end).trimStart() };
}

/** Undefined when the seal does not hold: nobody with a key wrote that. So it is for what is no JSON, which any writer can store. */
export function openedText<Value>(
  stored: string,
  holds: (text: string, signature: string) => boolean,
): Value | undefined {
  const { signature, text } = splitSealed(stored);
  return holds(text, signature) ? (parseJson(text) as Value | undefined) : undefined;
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
export function signedMessage(signatures: Signatures, about: string, message: object): string {
  return signedText(message, (text) => signatures.message(about, text));
}

export function openedMessage<Value>(signatures: Signatures, about: string, stored: string): Value | undefined {
  return openedText(stored, (text, signature) => signatures.isMessage(about, text, signature));
}
