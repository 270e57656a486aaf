/** The beginning of a response's body, decompressed. What comes after `maxBytes` is neither read nor decompressed. */
export async function readUpTo(
  { body }: Pick<Response, 'body'>,
  maxBytes: number,
): Promise<{ readonly bytes: Uint8Array; readonly truncated: boolean }> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body ?? []) {
    chunks.push(chunk.subarray(0, maxBytes - length));
    length += chunk.length;
    if (length > maxBytes) return { bytes: Buffer.concat(chunks), truncated: true };
  }
  return { bytes: Buffer.concat(chunks), truncated: false };
}
