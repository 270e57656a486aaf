/** What is stored as one text: a seal, a space, and the JSON that it is about. */
import type { Seals } from '../seals.ts';

export function sealedText(value: object, seal: (text: string) => string): string {
  const text = JSON.stringify(value);
  return `${seal(text)} ${text}`;
}

/** Undefined when the seal does not hold: nobody with a key wrote that. */
export function openedText<Value>(stored: string, holds: (text: string, seal: string) => boolean): Value | undefined {
  const split = stored.indexOf(' {');
  const text = stored.slice(split + 1);
  return holds(text, stored.slice(0, split)) ? (JSON.parse(text) as Value) : undefined;
}

/** Of a message, `about`: whom it is for, or what it is about. */
export function sealedMessage(seals: Seals, about: string, message: object): string {
  return sealedText(message, (text) => seals.message(about, text));
}

export function openedMessage<Value>(seals: Seals, about: string, stored: string): Value | undefined {
  return openedText(stored, (text, seal) => seals.isMessage(about, text, seal));
}
