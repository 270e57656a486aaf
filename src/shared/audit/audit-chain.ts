/**
 * The chain that makes edits of an audit trail detectable. Each record is chained: its hash covers the record, its number and the hash of
 * the record before. With signing keys the hash is an HMAC, so only a holder of a key can extend the chain; without keys it is a plain
 * digest. The first hash covers the trail's own ID, so records of two trails cannot be joined. Redis stores the number and hash of the last
 * record as the trail's head, apart from the records.
 */

import { orUndefined } from '../util/or-undefined.ts';
import { startOf } from '../util/text/text-cut.ts';

/** Makes and checks the hash of a chained record. */
export interface AuditChainLink {
  hash(seq: number, previous: string, text: string): string;
  isHash(seq: number, previous: string, text: string, seal: string): boolean;
  /** The ID of the key that the hash names, if that key is unknown here; `''` for a hash that was made without a key. */
  foreignKey(seal: string): string | undefined;
}

export interface ChainedRecord {
  /** Numbers start at 1 and have no gaps. */
  readonly seq: number;
  /** The record as JSON, byte for byte as it was chained. */
  readonly text: string;
  readonly seal: string;
}

/** The last number and hash of a trail. */
export interface TrailHead {
  readonly trail: string;
  /** 0 before the first record. */
  readonly seq: number;
  /** The last record's hash; the trail's ID before the first record. */
  readonly seal: string;
}

/** Continues a chain with records in order. */
export function chainRecords(
  head: TrailHead,
  texts: readonly string[],
  link: AuditChainLink,
): readonly ChainedRecord[] {
  let previous = head.seal;
  return texts.map((text, index) => {
    const seq = head.seq + 1 + index;
    previous = link.hash(seq, previous, text);
    return { seq, text, seal: previous };
  });
}

export function formatChainedRecord({ seq, text, seal }: ChainedRecord): string {
  return `{"seq":${seq},"record":${text},"seal":${JSON.stringify(seal)}}`;
}

/** The flag `s` is needed because JSON texts may contain U+2028 and U+2029 unescaped. */
const LINE = /^\{"seq":([1-9]\d{0,15}),"record":(\{.*\}),"seal":("(?:[^"\\]|\\.)*")\}$/s;

/** Parses a line, keeping the record's text byte for byte; undefined for anything that is not such a line. */
export function parseChainedRecord(line: string): ChainedRecord | undefined {
  const match = LINE.exec(line);
  if (match === null) return undefined;
  const [, seq, text = '', seal = ''] = match;
  return orUndefined(() => ({ seq: Number(seq), text, seal: JSON.parse(seal) as string }));
}

export type Fault =
  /** The record or its hash differs from what was chained. */
  | { readonly kind: 'edited'; readonly seq: number }
  /** The records were chained with a key that is unknown here, or before there was one, so they cannot be verified. */
  | { readonly kind: 'other-key'; readonly key: string; readonly from: number; readonly to: number }
  | { readonly kind: 'missing'; readonly from: number; readonly to: number }
  | { readonly kind: 'out-of-order'; readonly seq: number; readonly after: number }
  /** A line after this record is not a record. */
  | { readonly kind: 'unreadable'; readonly after: number }
  /** Records that were written are missing at the end; `to` is the last of them. */
  | { readonly kind: 'truncated'; readonly from: number; readonly to: number }
  /** The last record is not the one that the head names: the end was replaced. */
  | { readonly kind: 'other-end'; readonly seq: number };

export interface Verification {
  readonly records: number;
  readonly first: number;
  readonly last: number;
  readonly faults: readonly Fault[];
}

/** Checks a trail record by record, in the order of its lines. */
export class ChainCheck {
  readonly #link: AuditChainLink;
  readonly #faults: Fault[] = [];
  #records = 0;
  readonly #first: number;
  /** The hash that the next record must be chained to; undefined after a gap. */
  #previous: string | undefined;
  #last: number;
  #lastSeal: string | undefined;

  /** `start` is where the trail begins: number 0 and the trail's ID, or a record whose hash is unknown because it was archived. */
  constructor(link: AuditChainLink, start: { readonly seq: number; readonly seal: string | undefined }) {
    this.#link = link;
    this.#first = start.seq + 1;
    this.#last = start.seq;
    this.#previous = start.seal;
    this.#lastSeal = start.seal;
  }

  get last(): number {
    return this.#last;
  }

  addLine(line: string): void {
    const record = parseChainedRecord(line);
    if (record !== undefined) this.add(record);
    else {
      this.#faults.push({ kind: 'unreadable', after: this.#last });
      this.#previous = undefined;
    }
  }

  add(record: ChainedRecord): void {
    const { seq, text, seal } = record;
    this.#records += 1;
    if (seq <= this.#last) {
      this.#faults.push({ kind: 'out-of-order', seq, after: this.#last });
      this.#previous = undefined;
      return;
    }
    if (seq > this.#last + 1) {
      this.#faults.push({ kind: 'missing', from: this.#last + 1, to: seq - 1 });
      this.#previous = undefined;
    }
    // No hash is known after a gap, so the record cannot be checked; the gap itself is reported.
    if (this.#previous !== undefined && !this.#link.isHash(seq, this.#previous, text, seal))
      this.#addUnverified(seq, this.#link.foreignKey(seal));
    this.#previous = seal;
    this.#last = seq;
    this.#lastSeal = seal;
  }

  /** Reports consecutive records of one unknown key as one fault. */
  #addUnverified(seq: number, key: string | undefined): void {
    if (key === undefined) {
      this.#faults.push({ kind: 'edited', seq });
      return;
    }
    const last = this.#faults.at(-1);
    if (last?.kind === 'other-key' && last.key === key && last.to === seq - 1)
      this.#faults[this.#faults.length - 1] = { ...last, to: seq };
    else this.#faults.push({ kind: 'other-key', key, from: seq, to: seq });
  }

  /** Reports a truncated end: record `seq` was written and is missing. */
  reaches(seq: number): void {
    if (seq > this.#last) this.#faults.push({ kind: 'truncated', from: this.#last + 1, to: seq });
  }

  /** Ends the check. With the head, it checks the end of the trail, too. */
  end(head?: TrailHead): Verification {
    if (head !== undefined) {
      this.reaches(head.seq);
      const isReplaced = head.seq < this.#last || (head.seq === this.#last && head.seal !== this.#lastSeal);
      if (isReplaced) this.#faults.push({ kind: 'other-end', seq: this.#last });
    }
    return { records: this.#records, first: this.#first, last: this.#last, faults: this.#faults };
  }
}

export function faultText(fault: Fault): string {
  switch (fault.kind) {
    case 'edited':
      return `record ${fault.seq} does not match its hash: it was edited`;
    case 'other-key':
      return fault.key === ''
        ? `${range(fault.from, fault.to)} chained without a key and cannot be verified with PAWL_SIGNING_KEYS`
        : `${range(fault.from, fault.to)} chained with the key ${JSON.stringify(startOf(fault.key, 100))}, which is not in PAWL_SIGNING_KEYS of this process`;
    case 'missing':
      return `${range(fault.from, fault.to)} missing`;
    case 'out-of-order':
      return `record ${fault.seq} follows record ${fault.after}: it was moved or repeated`;
    case 'unreadable':
      return `the line after record ${fault.after} is not a record`;
    case 'truncated':
      return `${range(fault.from, fault.to)} missing at the end`;
    case 'other-end':
      return `record ${fault.seq} is not the last record of the trail: the end was replaced`;
  }
}

function range(from: number, to: number): string {
  return from === to ? `record ${from} is` : `records ${from} to ${to} are`;
}
