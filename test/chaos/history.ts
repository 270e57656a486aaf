/**
 * What was asked and what was told, by whom and when: written by the rig, which no fault reaches.
 */
import type { Ask, Told } from './protocol.ts';

/** One logical call: a key in a session. All who ask for it, whenever, are its observers. */
export interface CallHistory {
  readonly name: string;
  /** Its effects are found by its ID: its key is used by other calls as well. */
  readonly byId: boolean;
  readonly once: boolean;
  /** Its tool writes its effects to the log. */
  readonly logged: boolean;
  /** Set once Redis had acknowledged it. */
  callId?: string;
  readonly events: HistoryEvent[];
}

export type HistoryEvent =
  | { readonly atMs: number; readonly kind: 'invoke'; readonly ask: Ask }
  | { readonly atMs: number; readonly kind: 'accepted' }
  /** `label`: the one that this observer had asked for; undefined for one who only looked. */
  | { readonly atMs: number; readonly kind: 'told'; readonly told: Told; readonly label?: string };

/** Tools with effects `once`, which nobody may run twice. */
const ONCE: readonly string[] = [
  'record_once',
  'block',
  'shell_children',
  'versioned',
  'transfer',
  'pay_when_open',
  'order_outside',
];

const UNLOGGED: readonly string[] = ['ask_or_refuse', 'ask_or_park', 'walk'];

export class History {
  readonly #calls = new Map<string, CallHistory>();

  get calls(): readonly CallHistory[] {
    return [...this.#calls.values()];
  }

  find(name: string): CallHistory | undefined {
    return this.#calls.get(name);
  }

  isOnce(name: string): boolean {
    return this.#calls.get(name)?.once ?? false;
  }

  static nameOf({ key, name }: Ask): string {
    return name ?? key;
  }

  invoked(ask: Ask): CallHistory {
    const name = History.nameOf(ask);
    let call = this.#calls.get(name);
    if (call === undefined) {
      call = {
        name,
        byId: ask.name !== undefined,
        once: ONCE.includes(ask.tool),
        logged: !UNLOGGED.includes(ask.tool),
        events: [],
      };
      this.#calls.set(name, call);
    }
    call.events.push({ atMs: performance.now(), kind: 'invoke', ask });
    return call;
  }

  accepted(call: CallHistory, callId: string): void {
    call.callId = callId;
    call.events.push({ atMs: performance.now(), kind: 'accepted' });
  }

  told(call: CallHistory, told: Told, label?: string): void {
    call.events.push({
      atMs: performance.now(),
      kind: 'told',
      told,
      ...(label === undefined ? {} : { label }),
    });
  }
}

/** What observers of a call were told, in order. */
export function tellings(call: CallHistory): readonly Extract<HistoryEvent, { kind: 'told' }>[] {
  return call.events.filter((event) => event.kind === 'told');
}

export function hasEnded(call: CallHistory): boolean {
  return tellings(call).some(({ told }) => isEnd(told));
}

/** Says how the call ended, if only that nobody knows. */
export function isEnd({ kind }: Told): boolean {
  return kind !== 'info' && kind !== 'refused';
}
