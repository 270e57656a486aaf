/** A short form of identifiers: most are UUIDs, or begin with one. */

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/;
const UUID_LENGTH = 36;
/** The position of each byte in the text of a UUID. */
const POSITIONS = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
const DIGITS = '0123456789abcdef';
const PACKED = '~';
const PACKED_LENGTH = 23;

// Each call packs and unpacks several identifiers, so they share their buffers.
const bytes = Buffer.alloc(POSITIONS.length);
const uuid = Buffer.alloc(UUID_LENGTH, '-');

/** A UUID at the beginning takes 23 characters; any other text stays as it is. */
export function packId(id: string): string {
  if (id.length >= UUID_LENGTH && UUID.test(id)) {
    POSITIONS.forEach((position, index) => {
      bytes[index] = 16 * digitAt(id, position) + digitAt(id, position + 1);
    });
    return PACKED + bytes.toString('base64url') + id.slice(UUID_LENGTH);
  }
  return id.startsWith(PACKED) ? PACKED + id : id;
}

export function unpackId(text: string): string {
  if (!text.startsWith(PACKED)) return text;
  if (text.startsWith(PACKED, 1)) return text.slice(1);
  if (bytes.write(text.slice(1, PACKED_LENGTH), 'base64url') < bytes.length) return text;
  POSITIONS.forEach((position, index) => {
    const byte = bytes[index] ?? 0;
    uuid[position] = DIGITS.charCodeAt(byte >> 4);
    uuid[position + 1] = DIGITS.charCodeAt(byte & 15);
  });
  return uuid.toString('latin1') + text.slice(PACKED_LENGTH);
}

/** The value of a lower-case hexadecimal digit. */
function digitAt(text: string, position: number): number {
  const code = text.charCodeAt(position);
  return code < 97 ? code - 48 : code - 87;
}
