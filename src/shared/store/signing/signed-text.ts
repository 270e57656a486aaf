/** Records that are stored as one text: the signature, a space, and the JSON that was signed. */
import type { RecordId, Signatures } from '../../signing/signatures.ts';
import { parseJson } from '../../util/json/json-types.ts';

export function signedText(signatures: Signatures, kind: string, id: RecordId, value: object): string {
  const text = JSON.stringify(value);
  return `${signatures.sign(kind, id, text)} ${text}`;
}

/** Splits a stored text into its signature and its JSON. A text without a signature has the empty one. */
export function splitSigned(stored: string): { readonly signature: string; readonly text: string } {
  const end = stored.startsWith('{') ? 0 : stored.indexOf(' {');
  return { signature: stored.slice(0, Math.max(0, end)), text: stored.slice(end).trimStart() };
}

/** Undefined when the signature does not hold, or when the text is not JSON: any writer can store that. */
export function verifiedText<Value>(
  signatures: Signatures,
  kind: string,
  id: RecordId,
  stored: string,
): Value | undefined {
  const { signature, text } = splitSigned(stored);
  return signatures.verify(kind, id, text, signature) ? (parseJson(text) as Value | undefined) : undefined;
}

/** `about`: the receiver of the message, or its subject. */
export function signedMessage(signatures: Signatures, about: string, message: object): string {
  return signedText(signatures, 'message', about, message);
}

export function verifiedMessage<Value>(signatures: Signatures, about: string, stored: string): Value | undefined {
  return verifiedText(signatures, 'message', about, stored);
}
