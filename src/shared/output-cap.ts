/** The part of a large output that a model is shown: its beginning, with a visible mark and where the whole can be read. */

export interface CutOutput {
  readonly content: unknown;
  /** Undefined when nothing was cut. */
  readonly whole?: { readonly bytes: number; readonly shownBytes: number; readonly href: string };
}

/** Keeps the shape of the output: long texts lose their end, lists and objects their last members. `jsonBytes`, if they are known. */
export function capOutput(
  content: unknown,
  maxBytes: number | undefined,
  callId: string,
  jsonBytes?: number,
): CutOutput {
  if (maxBytes === undefined) return { content };
  const bytes = jsonBytes === undefined || typeof content === 'string' ? sizeOf(content) : jsonBytes;
  if (bytes <= maxBytes) return { content };
  const href = `/v1/calls/${callId}/output`;
  const mark = `… [cut: ${maxBytes} of ${bytes} bytes are shown; the whole is at ${href}]`;
  const room = { bytes: maxBytes, marked: false };
  const shown = cut(content, room, mark);
  // A number that is too long stays what it is.
  if (!room.marked) return { content };
  return { content: shown, whole: { bytes, shownBytes: sizeOf(shown), href } };
}

function sizeOf(value: unknown): number {
  return Buffer.byteLength(typeof value === 'string' ? value : (JSON.stringify(value) ?? ''));
}

interface Room {
  bytes: number;
  marked: boolean;
}

function cut(value: unknown, room: Room, mark: string): unknown {
  if (typeof value === 'string') {
    const bytes = Buffer.byteLength(value);
    if (bytes <= room.bytes) {
      room.bytes -= bytes;
      return value;
    }
    // At a character's boundary: the decoder leaves out what is incomplete at the end.
    const kept = new TextDecoder().decode(Buffer.from(value).subarray(0, Math.max(0, room.bytes)), { stream: true });
    room.bytes = 0;
    room.marked = true;
    return kept + mark;
  }
  if (typeof value !== 'object' || value === null) {
    room.bytes -= sizeOf(value);
    return value;
  }
  if (Array.isArray(value)) {
    const shown: unknown[] = [];
    for (const item of value) {
      if (room.bytes <= 0) {
        if (!room.marked) shown.push(mark);
        room.marked = true;
        break;
      }
      room.bytes -= 1;
      shown.push(cut(item, room, mark));
    }
    return shown;
  }
  const shown: Record<string, unknown> = {};
  for (const [name, member] of Object.entries(value)) {
    if (room.bytes <= 0) {
      if (!room.marked) shown['…'] = mark;
      room.marked = true;
      break;
    }
    room.bytes -= Buffer.byteLength(name) + 4;
    shown[name] = cut(member, room, mark);
  }
  return shown;
}
