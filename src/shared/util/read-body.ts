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

/** How long the page of an error is read. */
const ERROR_PAGE_MS = 1_000;

/** The body of an error; empty where it breaks off, is too large or is slow, because the status counts without it. */
export async function readErrorPage({ body }: Pick<Response, 'body'>, maxBytes: number): Promise<Uint8Array> {
  const nothing = new Uint8Array();
  try {
    const signal = AbortSignal.timeout(ERROR_PAGE_MS);
    const page = body?.pipeThrough(new TransformStream<Uint8Array, Uint8Array>(), { signal }) ?? null;
    const { bytes, truncated } = await readUpTo({ body: page }, maxBytes);
    return truncated ? nothing : bytes;
  } catch {
    return nothing;
  }
}
