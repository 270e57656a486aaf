/**
 * What must hold of any history of calls, however workers died in it: checked from what every reader was told, what the
 * record says and what the effect log, written outside of Redis, proves.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Effects, ToolResultEnvelope } from '../../src/index.ts';
import type { AttemptRecord, CallState } from '../../src/types.ts';
import type { EffectLine } from './fixtures/effect-log.ts';

export interface ObservedCall {
  readonly callId: string;
  readonly effects: Effects;
  /** The end as each reader was told it: the caller, another process, a later call with the same key, … */
  readonly told: readonly ToolResultEnvelope[];
  readonly record: { readonly state: CallState; readonly attempts: readonly AttemptRecord[] };
}

/** Two attempts that took their worker down set a call aside. */
const LOST_ATTEMPTS_OF_POISON = 3;

/** Every breach, in words; empty when all is well. */
export function breaches(calls: readonly ObservedCall[], log: readonly EffectLine[]): readonly string[] {
  const lines = Map.groupBy(log, (line) => line.callId);
  const known = new Set(calls.map((call) => call.callId));
  const strangers = [...lines.keys()].filter((callId) => !known.has(callId));
  return [
    ...strangers.map((callId) => `${callId}: has effects and was never called`),
    ...calls.flatMap((call) => {
      const own = lines.get(call.callId) ?? [];
      return [...settledOnce(call), ...ranSoundly(call, own), ...toldTheTruth(call, own)].map(
        (breach) => `${call.callId} (${call.effects}): ${breach}`,
      );
    }),
  ];
}

/** What is the same for everybody who asks, whoever asks and whenever. */
export function substance({ requestId: _, fromCache: _fromCache, cache: _cache, ...rest }: ToolResultEnvelope): object {
  return rest;
}

function settledOnce({ told, record }: ObservedCall): string[] {
  const [first, ...others] = told;
  if (first === undefined) return ['nobody was told how it ended'];
  return [
    ...(record.state === 'inflight' ? ['is still in flight'] : []),
    ...((record.state === 'done') === (first.status === 'success') ? [] : [`is ${record.state} and ${first.status}`]),
    ...others
      .filter((other) => !isDeepStrictEqual(substance(other), substance(first)))
      .map(
        (other) => `two readers differ: ${JSON.stringify(substance(first))} and ${JSON.stringify(substance(other))}`,
      ),
  ];
}

function ranSoundly({ effects, record }: ObservedCall, lines: readonly EffectLine[]): string[] {
  const begins = lines.filter((line) => line.phase === 'begin');
  const done = lines.filter((line) => line.phase === 'effect');
  const fences = begins.map((line) => line.fence);
  return [
    ...(effects === 'once' && begins.length > 1 ? [`began ${begins.length} times`] : []),
    ...(effects === 'once' && done.length > 1 ? [`had ${done.length} effects`] : []),
    ...(new Set(fences).size < fences.length ? [`two attempts ran under one fence: ${fences.join(', ')}`] : []),
    ...(fences.some((fence, index) => fence < (fences[index - 1] ?? 0))
      ? [`an attempt began after a newer one: fences ${fences.join(', ')}`]
      : []),
    ...(new Set(lines.map((line) => line.key)).size > 1 ? ['its attempts sent different keys downstream'] : []),
    ...done
      .filter((line) => !begins.some((begin) => begin.fence === line.fence && begin.pid === line.pid))
      .map((line) => `an effect under fence ${line.fence} has no begin`),
    ...(record.attempts.some((attempt, index) => attempt.attempt !== index + 1)
      ? ['its attempts are misnumbered']
      : []),
  ];
}

function toldTheTruth({ effects, told, record }: ObservedCall, lines: readonly EffectLine[]): string[] {
  const [end] = told;
  const done = lines.filter((line) => line.phase === 'effect');
  const lost = record.attempts.filter((attempt) => attempt.status === 'lost').length;
  if (end === undefined) return [];
  if (end.status === 'success') {
    return [
      ...(done.length === 0 ? ['succeeded without an effect'] : []),
      ...(effects === 'once' && lost > 0 ? ['succeeded although an attempt was lost'] : []),
    ];
  }
  switch (end.error.code) {
    case 'OUTCOME_UNKNOWN':
      return effects === 'once' || effects === 'probe' ? [] : ['is unknown although it could have run again'];
    case 'POISONED':
      return [
        ...(effects === 'once' ? ['was set aside although its outcome is unknown'] : []),
        ...(lost >= LOST_ATTEMPTS_OF_POISON ? [] : [`was set aside after ${lost} lost attempts`]),
      ];
    default:
      return done.length === 0 ? [] : [`ended with ${end.error.code} although it had its effect`];
  }
}
