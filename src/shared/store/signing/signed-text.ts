/** Records that are stored as one text: the signature, a space, and the JSON that was signed. */
import type { RecordId, Signatures } from '../../signing/signatures.ts';
import { isObject, parseJson } from '../../util/json/json-types.ts';

export function signedText(signatures: Signatures, kind: string, id: RecordId, value: object): string {
  const text = JSON.stringify(value);
  return `${signatures.sign(kind, id, text)} ${text}`;
}

/** Splits a stored text into its signature and its JSON. A text without a signature has the empty one. */
export function splitSigned(stored: string): { readonly signature: string; readonly text: string } {
  const end = stored.startsWith('{') ? 0 : stored.indexOf(' {');
  return { signature: stored.slice(0, Math.max(0, end)), text: stored.slice(end).trimStart() };
}

/** Undefined when the signature does not hold, or when the text is no JSON object with these members: any writer can store that. */
export function verifiedText<Value>(
  signatures: Signatures,
  kind: string,
  id: RecordId,
  stored: string,
  members: readonly string[] = [],
): Value | undefined {
  // Readers of a record that is not there pass the empty text, which is none to report.
  if (stored === '') return undefined;
  const { signature, text } = splitSigned(stored);
  if (!signatures.verify(kind, id, text, signature)) return undefined;
  const value = parseJson(text);
  if (isObject(value) && members.every((name) => value[name] !== undefined)) return value as Value;
  const ids = [id].flat();
  signatures.refuseOnce({ kind, id: ids, reason: `the ${kind} ${ids.join(' ')} cannot be read` }, kind, ...ids, stored);
  return undefined;
}

/** `about`: the receiver of the message, or its subject. */
export function signedMessage(signatures: Signatures, about: string, message: object): string {
  return signedText(signatures, 'message', about, message);
}

export function verifiedMessage<Value>(signatures: Signatures, about: string, stored: string): Value | undefined {
  return verifiedText(signatures, 'message', about, stored);
}
