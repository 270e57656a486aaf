/** The type and the size of an image, read from its first bytes: of the types that models can see. */

type ImageType = 'image/png' | 'image/jpeg' | 'image/gif' | 'image/webp';

export function imageTypeOf(bytes: Uint8Array): ImageType | undefined {
  const starts = (...values: number[]) => values.every((value, index) => bytes[index] === value);
  if (starts(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a)) return 'image/png';
  if (starts(0xff, 0xd8, 0xff)) return 'image/jpeg';
  if (starts(0x47, 0x49, 0x46, 0x38)) return 'image/gif';
  const ascii = (from: number, to: number) => String.fromCharCode(...bytes.subarray(from, to));
  return ascii(0, 4) === 'RIFF' && ascii(8, 12) === 'WEBP' ? 'image/webp' : undefined;
}

/** The longer side in pixels; 0 where the bytes do not say it. */
export function longestSideOf(bytes: Buffer, type: ImageType): number {
  // Bytes may be missing from the end of a header.
  const header = Buffer.concat([bytes.subarray(0, 32), Buffer.alloc(32)]);
  switch (type) {
    case 'image/png':
      return Math.max(header.readUInt32BE(16), header.readUInt32BE(20));
    case 'image/gif':
      return Math.max(header.readUInt16LE(6), header.readUInt16LE(8));
    case 'image/jpeg':
      return longestSideOfJpeg(bytes);
    case 'image/webp':
      return longestSideOfWebp(header);
  }
}

/** A JPEG is a list of segments, each with its length. One of them, the frame, holds the size. */
function longestSideOfJpeg(bytes: Buffer): number {
  for (let at = 2; at + 9 <= bytes.length && bytes[at] === 0xff; ) {
    const marker = bytes[at + 1] ?? 0;
    // Any number of bytes may fill the space before a marker.
    if (marker === 0xff) at += 1;
    else if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker))
      return Math.max(bytes.readUInt16BE(at + 5), bytes.readUInt16BE(at + 7));
    else at += 2 + bytes.readUInt16BE(at + 2);
  }
  return 0;
}

/** WebP has three forms of its first chunk: extended, lossless and lossy. */
function longestSideOfWebp(header: Buffer): number {
  switch (header.toString('latin1', 12, 16)) {
    case 'VP8X':
      return 1 + Math.max(header.readUIntLE(24, 3), header.readUIntLE(27, 3));
    case 'VP8L': {
      const bits = header.readUInt32LE(21);
      return 1 + Math.max(bits & 0x3fff, (bits >>> 14) & 0x3fff);
    }
    default:
      return Math.max(header.readUInt16LE(26), header.readUInt16LE(28)) & 0x3fff;
  }
}
