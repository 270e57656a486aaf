/**
 * The nine invariants, checked on any history and effect log:
 *
 * - I1 no acknowledged call is lost: each reaches an end that its caller can learn
 * - I2 a `once` call has at most one effect, and exactly one when it succeeded
 * - I3 all observers are told the same end
 * - I4 a sink that refuses lower fences takes no second effect of one `once` call
 * - I5 no false verdict: success means effect, a definite error means none
 * - I6 nothing runs that no producer signed (rows that forge)
 * - I7 bounds hold: attempts, amplification, time limits (rows that count)
 * - I8 nothing is stuck once the fault is over
 * - I9 nobody else suffers (rows with neighbours)
 */
import { isDeepStrictEqual } from 'node:util';
import type { EffectLine } from '../journeys/fixtures/effect-log.ts';
import { type CallHistory, hasEnded, isEnd, tellings } from './history.ts';
import type { Told } from './protocol.ts';

export interface Verdict {
  readonly calls: number;
  readonly lostCalls: number;
  readonly secondEffects: number;
  readonly falseVerdicts: number;
  /** In words, each with its invariant. */
  readonly breaches: readonly string[];
}

/** What a row itself counts: I6, I7, I9. */
export interface Bound {
  readonly invariant: 'I4' | 'I5' | 'I6' | 'I7' | 'I8' | 'I9';
  readonly what: string;
  readonly value: number;
  readonly atMost: number;
}

export function judge(calls: readonly CallHistory[], log: readonly EffectLine[], bounds: readonly Bound[]): Verdict {
  const byKey = Map.groupBy(log, (line) => line.key);
  const byId = Map.groupBy(log, (line) => line.callId);
  const linesOf = (call: CallHistory) => (call.byId ? byId.get(call.callId ?? '') : byKey.get(call.name)) ?? [];
  const effectsOf = (call: CallHistory) => linesOf(call).filter(({ phase }) => phase === 'effect');
  const lost = calls.filter((call) => call.callId !== undefined && !hasEnded(call));
  const doubled = calls.filter((call) => call.once && effectsOf(call).length > 1);
  const refused = doubled.filter((call) => acceptedByFence(effectsOf(call)) > 1);
  const lies = calls.flatMap((call) => falsehoods(call, effectsOf(call).length));
  const known = new Set(calls.flatMap(linesOf));
  const strangers = new Set(log.filter((line) => !known.has(line)).map(({ key }) => key));
  return {
    calls: calls.length,
    lostCalls: lost.length,
    secondEffects: doubled.reduce((sum, call) => sum + effectsOf(call).length - 1, 0),
    falseVerdicts: lies.length,
    breaches: [
      ...lost.map(({ name }) => `I1: ${name} was acknowledged and never ended`),
      ...doubled.map((call) => `I2: ${call.name} had ${effectsOf(call).length} effects`),
      ...refused.map(({ name }) => `I4: a fencing sink took more than one effect of ${name}`),
      ...lies,
      ...[...strangers].map((key) => `I6: ${key} ran and nobody had called it`),
      ...bounds
        .filter(({ value, atMost }) => !(value <= atMost))
        .map(({ invariant, what, value, atMost }) => `${invariant}: ${what} is ${value}, at most ${atMost} allowed`),
    ],
  };
}

/** How many effects a sink takes that refuses a fence lower than, or equal to, one that it has seen. */
function acceptedByFence(effects: readonly EffectLine[]): number {
  let highest = Number.NEGATIVE_INFINITY;
  let accepted = 0;
  for (const { fence } of effects) {
    if (fence <= highest) continue;
    highest = fence;
    accepted += 1;
  }
  return accepted;
}

function falsehoods(call: CallHistory, effects: number): readonly string[] {
  const ends = tellings(call).filter(({ told }) => isEnd(told));
  const [first] = ends;
  if (first === undefined) return [];
  const foreign = ends.filter(
    ({ told, label }) => told.kind === 'ok' && label !== undefined && labelOf(told.output) !== label.toWellFormed(),
  );
  const differing = ends.filter(({ told }) => !sameEnd(told, first.told));
  return [
    ...foreign.map(() => `I5: ${call.name}: told the result of other parameters as its own`),
    // However many were told so.
    ...new Set(differing.map(({ told }) => `I3: ${call.name}: told ${shown(first.told)}, and another ${shown(told)}`)),
    ...(first.told.kind === 'ok' && call.logged && effects === 0
      ? [`I5: ${call.name}: told success without an effect`]
      : []),
    ...(first.told.kind === 'fail' && effects > 0
      ? [`I5: ${call.name}: told ${shown(first.told)} although it had its effect`]
      : []),
  ];
}

function sameEnd(one: Told, other: Told): boolean {
  if (one.kind === 'ok' || other.kind === 'ok') return one.kind === other.kind && isDeepStrictEqual(one, other);
  return one.kind === other.kind && one.code === other.code;
}

/** Pawl puts U+FFFD in place of half characters in results, since a provider refuses a request that has one. */
function labelOf(output: unknown): unknown {
  const label = typeof output === 'object' && output !== null && 'label' in output ? output.label : undefined;
  return typeof label === 'string' ? label.toWellFormed() : label;
}

function shown(told: Told): string {
  return told.kind === 'ok' ? `success ${JSON.stringify(told.output)}` : `${told.code} (${told.message.slice(0, 80)})`;
}
