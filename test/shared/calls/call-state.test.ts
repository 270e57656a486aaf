import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import {
  abortedSettlement,
  CALL_STATES,
  type CallStatus,
  DEFAULT_TTLS,
  decideRecovery,
  PHASES,
  TRANSITIONS,
  transition,
} from '../../../src/shared/calls/call-state.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { EFFECTS } from '../../../src/shared/retries/effects.ts';

const STANDINGS: readonly CallStatus[] = [
  ...PHASES,
  ...CALL_STATES.filter((state): state is Exclude<typeof state, 'inflight'> => state !== 'inflight'),
];

/** Columns in the order of STANDINGS: x is legal. */
const LEGAL: Readonly<Record<CallStatus, string>> = {
  //                    cl aw de qu ru pe wa do fa ca
  claimed: '            .  x  x  x  .  .  .  .  .  x',
  'awaiting-approval': '.  .  x  x  .  .  .  x  x  x',
  delayed: '            .  .  .  x  .  .  .  .  .  x',
  queued: '             .  .  .  .  x  .  .  .  x  x',
  running: '            .  .  .  x  x  x  x  x  x  x',
  pending: '            .  .  .  .  .  .  x  x  x  x',
  'waiting-retry': '    .  .  .  .  x  .  .  .  x  x',
  done: '               .  .  .  .  .  .  .  .  .  .',
  failed: '             .  x  .  x  .  .  .  x  x  .',
  cancelled: '          .  x  .  x  .  .  .  x  x  .',
};

describe('R11: the states of a call', () => {
  test('are four, with phases inside inflight', () => {
    expect(CALL_STATES).toEqual(['inflight', 'done', 'failed', 'cancelled']);
    expect(PHASES).toEqual([
      'claimed',
      'awaiting-approval',
      'delayed',
      'queued',
      'running',
      'pending',
      'waiting-retry',
    ]);
  });

  test.each(
    STANDINGS.flatMap((from) => {
      const row = LEGAL[from].trim().split(/\s+/);
      return STANDINGS.map((to, column) => ({ from, to, legal: row[column] === 'x' }));
    }),
  )('$from to $to: legal $legal', ({ from, to, legal }) => {
    if (legal) {
      expect(transition(from, to)).toMatch(/\w/);
      return;
    }
    const refused = () => transition(from, to);
    expect(refused).toThrow(PawlError);
    expect(refused).toThrow(`from ${from} to ${to}. From ${from} it can go to: `);
  });

  test('R16: outcomes live 24 h, failures 5 minutes', () => {
    expect(DEFAULT_TTLS).toEqual({ doneMs: 86_400_000, failedMs: 300_000, cancelledMs: 86_400_000 });
  });
});

describe('after a crash the effects decide', () => {
  const expected = {
    none: ['run-again', 'POISONED'],
    idempotent: ['run-again', 'POISONED'],
    keyed: ['run-again', 'POISONED'],
    probe: ['probe', 'POISONED'],
    once: ['OUTCOME_UNKNOWN', 'OUTCOME_UNKNOWN'],
  } as const;

  test.each(EFFECTS.flatMap((effects) => [false, true].map((isPoison) => ({ effects, isPoison }))))(
    '$effects, proven to take workers down: $isPoison',
    ({ effects, isPoison }) => {
      const decided = decideRecovery(effects, isPoison);
      expect(decided.kind === 'stop' ? decided.code : decided.kind).toBe(expected[effects][isPoison ? 1 : 0]);
    },
  );

  test.each(
    EFFECTS.flatMap((effects) =>
      [true, false].map((nothing) => ({
        effects,
        nothing,
        settlement: effects === 'none' || nothing ? 'cancelled' : 'unsettled',
      })),
    ),
  )(
    'cancelling a running $effects tool that proved nothing happened ($nothing): $settlement',
    ({ effects, nothing, settlement }) => {
      expect(abortedSettlement(effects, nothing)).toBe(settlement);
    },
  );
});

test('the picture in docs/call-lifecycle.md shows the legal transitions, and no others', () => {
  const text = readFileSync(new URL('../../../docs/call-lifecycle.md', import.meta.url), 'utf8');
  const drawn = [...text.matchAll(/^ +(\[\*\]|\w+) --> (\w+): /gm)].map(([, from = '', to = '']) =>
    `${from} > ${to}`.replace('[*]', 'claimed').replaceAll('_', '-'),
  );
  const legal = Object.entries(TRANSITIONS).flatMap(([from, to]) => Object.keys(to).map((each) => `${from} > ${each}`));
  // A claim and its job are one step, so that no other write can come between the two.
  expect(drawn.toSorted()).toEqual(legal.filter((each) => each !== 'claimed > cancelled').toSorted());
});
