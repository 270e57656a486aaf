/** A short form of identifiers: most are UUIDs, or begin with one. */

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/;
const UUID_LENGTH = 36;
const PACKED = '~';
const PACKED_LENGTH = 23;

/** A UUID at the beginning takes 23 characters; any other text stays as it is. */
export function packedId(id: string): string {
  if (id.length >= UUID_LENGTH && UUID.test(id)) {
    const hex = id.slice(0, UUID_LENGTH).replaceAll('-', '');
    return `${PACKED}${Buffer.from(hex, 'hex').toString('base64url')}${id.slice(UUID_LENGTH)}`;
  }
  return id.startsWith(PACKED) ? PACKED + id : id;
}

export function unpackedId(text: string): string {
  if (!text.startsWith(PACKED)) return text;
  if (text.startsWith(PACKED, 1)) return text.slice(1);
  const hex = Buffer.from(text.slice(1, PACKED_LENGTH), 'base64url').toString('hex');
  const uuid = `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
  return uuid + text.slice(PACKED_LENGTH);
}
