/**
 * The chain that makes a trail's edits seen (I4). Every record is sealed together with its number and the seal before it: under the
 * fleet's key where there is one, so that only who has it can make a chain that holds, else as a plain digest. The first record's
 * seal covers the trail's own ID, so that no two trails can be joined. Where the trail ends is told by its head, which is kept apart.
 */
import { startOf } from '../util/text/text-cut.ts';

/** Makes and checks the seal of a record. */
export interface AuditChainLink {
  audit(seq: number, previous: string, text: string): string;
  isAudit(seq: number, previous: string, text: string, seal: string): boolean;
  /** The name of the key that a seal says it was made with, when it is none of those that are here; `''`: made without one. */
  foreignKey(seal: string): string | undefined;
}

export interface ChainedRecord {
  /** From 1 on, without gaps. */
  readonly seq: number;
  /** The record, JSON, byte for byte as it was sealed. */
  readonly text: string;
  readonly seal: string;
}

/** Where a trail stands. */
export interface TrailHead {
  readonly trail: string;
  /** 0 before the first record. */
  readonly seq: number;
  /** Of the last record; the trail's ID before the first one. */
  readonly seal: string;
}

/** Continues a chain with records in order. */
export function seal(head: TrailHead, texts: readonly string[], sealing: AuditChainLink): readonly ChainedRecord[] {
  let previous = head.seal;
  return texts.map((text, index) => {
    const seq = head.seq + 1 + index;
    previous = sealing.audit(seq, previous, text);
    return { seq, text, seal: previous };
  });
}

/** A sealed record as a line of a file. */
export function lineOf({ seq, text, seal }: ChainedRecord): string {
  return `{"seq":${seq},"record":${text},"seal":${JSON.stringify(seal)}}`;
}

/** With `s`: a text may hold U+2028 and U+2029, which JSON has as they are. */
const LINE = /^\{"seq":([1-9]\d{0,15}),"record":(\{.*\}),"seal":("(?:[^"\\]|\\.)*")\}$/s;

/** The record of a line, its text byte for byte; undefined for what is no such line. */
export function recordOf(line: string): ChainedRecord | undefined {
  const match = LINE.exec(line);
  if (match === null) return undefined;
  try {
    return { seq: Number(match[1]), text: match[2] ?? '', seal: JSON.parse(match[3] ?? '') as string };
  } catch {
    return undefined;
  }
}

export type Fault =
  /** The record or its seal is not what was sealed. */
  | { readonly kind: 'edited'; readonly seq: number }
  /** Sealed with a key that is not here, or before there was one: nothing can be said of them. */
  | { readonly kind: 'other-key'; readonly key: string; readonly from: number; readonly to: number }
  | { readonly kind: 'missing'; readonly from: number; readonly to: number }
  | { readonly kind: 'out-of-order'; readonly seq: number; readonly after: number }
  /** Something that is no record stands after a record. */
  | { readonly kind: 'unreadable'; readonly after: number }
  /** Records that were written are not there any more; `to` is the last of them. */
  | { readonly kind: 'truncated'; readonly from: number; readonly to: number }
  /** The last record is not the one that the head names: the end was replaced. */
  | { readonly kind: 'other-end'; readonly seq: number };

export interface Verification {
  readonly records: number;
  readonly first: number;
  readonly last: number;
  readonly faults: readonly Fault[];
}

/** Checks a trail record by record, in the order in which they stand. */
export class ChainCheck {
  readonly #sealing: AuditChainLink;
  readonly #faults: Fault[] = [];
  #records = 0;
  readonly #first: number;
  /** The seal that the next record must be sealed with; undefined after a gap. */
  #previous: string | undefined;
  #last: number;
  #lastSeal: string | undefined;

  /**
   * Behind what the first record must stand: a trail's beginning (0 and its ID), or a record whose seal is not known any more,
   * because it was put away.
   */
  constructor(sealing: AuditChainLink, start: { readonly seq: number; readonly seal: string | undefined }) {
    this.#sealing = sealing;
    this.#first = start.seq + 1;
    this.#last = start.seq;
    this.#previous = start.seal;
    this.#lastSeal = start.seal;
  }

  get last(): number {
    return this.#last;
  }

  addLine(line: string): void {
    const record = recordOf(line);
    if (record !== undefined) this.add(record);
    else {
      this.#faults.push({ kind: 'unreadable', after: this.#last });
      this.#previous = undefined;
    }
  }

  add(record: ChainedRecord): void {
    const { seq, text, seal: sealed } = record;
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
    // Behind a gap there is no seal to check with; the gap itself is told.
    if (this.#previous !== undefined && !this.#sealing.isAudit(seq, this.#previous, text, sealed))
      this.#addUnproven(seq, this.#sealing.foreignKey(sealed));
    this.#previous = sealed;
    this.#last = seq;
    this.#lastSeal = sealed;
  }

  /** Those of one foreign key are told together: mostly it is not known to whoever looks. */
  #addUnproven(seq: number, key: string | undefined): void {
    if (key === undefined) {
      this.#faults.push({ kind: 'edited', seq });
      return;
    }
    const last = this.#faults.at(-1);
    if (last?.kind === 'other-key' && last.key === key && last.to === seq - 1)
      this.#faults[this.#faults.length - 1] = { ...last, to: seq };
    else this.#faults.push({ kind: 'other-key', key, from: seq, to: seq });
  }

  /** What came after the last record is gone: `seq` was written. */
  reaches(seq: number): void {
    if (seq > this.#last) this.#faults.push({ kind: 'truncated', from: this.#last + 1, to: seq });
  }

  /** With the head, the end is checked, too. */
  end(head?: TrailHead): Verification {
    if (head !== undefined) {
      this.reaches(head.seq);
      const replaced = head.seq < this.#last || (head.seq === this.#last && head.seal !== this.#lastSeal);
      if (replaced) this.#faults.push({ kind: 'other-end', seq: this.#last });
    }
    return { records: this.#records, first: this.#first, last: this.#last, faults: this.#faults };
  }
}

/** For people. */
export function faultText(fault: Fault): string {
  switch (fault.kind) {
    case 'edited':
      return `record ${fault.seq} is not what was sealed: it, or its seal, was changed`;
    case 'other-key':
      return fault.key === ''
        ? `${range(fault.from, fault.to)} sealed without a key: PAWL_SIGNING_KEYS proves nothing of that`
        : `${range(fault.from, fault.to)} sealed with the key ${JSON.stringify(startOf(fault.key, 100))}, which is not in PAWL_SIGNING_KEYS here`;
    case 'missing':
      return `${range(fault.from, fault.to)} missing`;
    case 'out-of-order':
      return `record ${fault.seq} stands behind record ${fault.after}: it was moved or repeated`;
    case 'unreadable':
      return `what stands behind record ${fault.after} is no record`;
    case 'truncated':
      return `${range(fault.from, fault.to)} gone from the end`;
    case 'other-end':
      return `record ${fault.seq} is not where the trail ends: its end was replaced`;
  }
}

function range(from: number, to: number): string {
  return from === to ? `record ${from} is` : `records ${from} to ${to} are`;
}
