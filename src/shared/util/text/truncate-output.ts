/** The part of a large output that a model is shown: its beginning, with a visible mark and where the whole can be read. */
import { startOf } from './text-cut.ts';

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
  const shown = typeof content === 'string' ? cutText(content, room, mark, sizeOf) : cut(content, room, mark);
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
  if (typeof value === 'string') return cutText(value, room, mark, sizeInJson);
  if (typeof value !== 'object' || value === null) {
    room.bytes -= sizeOf(value);
    return value;
  }
  // The brackets: each member counts a comma, and there is one less.
  room.bytes -= Object.keys(value).length === 0 ? 2 : 1;
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
  // Not by assignment: a member may be called `__proto__`.
  const shown: [string, unknown][] = [];
  for (const [name, member] of Object.entries(value)) {
    if (room.bytes <= 0) {
      if (!room.marked) shown.push(['…', mark]);
      room.marked = true;
      break;
    }
    room.bytes -= sizeInJson(name) + 2;
    shown.push([name, cut(member, room, mark)]);
  }
  return Object.fromEntries(shown);
}

/** With its quotes and escapes. */
function sizeInJson(text: string): number {
  return Buffer.byteLength(JSON.stringify(text));
}

/** The longest beginning of whole characters that fits. */
function cutText(text: string, room: Room, mark: string, sizeOfText: (text: string) => number): string {
  const bytes = sizeOfText(text);
  if (bytes <= room.bytes) {
    room.bytes -= bytes;
    return text;
  }
  let fits = 0;
  // A unit takes a byte at least.
  let tooLong = Math.min(text.length, Math.max(0, room.bytes)) + 1;
  while (tooLong - fits > 1) {
    const length = (fits + tooLong) >> 1;
    if (sizeOfText(text.slice(0, length)) <= room.bytes) fits = length;
    else tooLong = length;
  }
  room.bytes = 0;
  room.marked = true;
  return startOf(text, fits) + mark;
}
