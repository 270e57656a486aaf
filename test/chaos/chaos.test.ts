import { expect, test } from 'vitest';
import { atOnce } from '../helpers/signal.ts';
import { judge } from './checker.ts';
import { type CallHistory, History } from './history.ts';
import type { Told } from './protocol.ts';
import { redrives } from './rows/dead-letters.ts';
import { delayedRow } from './rows/delayed-calls.ts';
import { ROWS } from './rows/index.ts';
import { randomKills } from './rows/kills.ts';
import { planRow } from './rows/plans.ts';
import { scheduleRow } from './rows/schedules.ts';
import { runRow } from './run.ts';

/** Rows that break in different places, and mostly wait. In `npm test`, the journeys kill workers, producers and Redis. */
const TOGETHER = [2, 3, 5, 7, 28, 37];
const SEED = Number(process.env['PAWL_TEST_SEED'] ?? 1);

test(`rows ${TOGETHER.join(', ')} of the fault matrix leave Pawl clean`, { timeout: 900_000, tags: 'slow' }, () =>
  atOnce(Object.fromEntries(TOGETHER.map((number) => [`row ${number}`, number])), async (number) => {
    const row = ROWS.find((candidate) => candidate.number === number);
    if (row === undefined) throw new Error(`there is no row ${number}`);
    const { breaches, calls } = await runRow(row, 'pawl', SEED);
    expect(breaches, `npm run chaos -- --rows ${number} --seed ${SEED} --stacks pawl`).toEqual([]);
    expect(calls).toBeGreaterThan(0);
  }),
);

test('row 2 of the fault matrix finds the second effects of a naive application', {
  tags: 'slow',
}, async () => {
  const row = ROWS.find(({ number }) => number === 2);
  if (row === undefined) throw new Error('there is no row 2');
  const { secondEffects, falseVerdicts } = await runRow(row, 'naive', SEED);
  expect(secondEffects + falseVerdicts).toBeGreaterThan(0);
});

test('of calls whose workers are killed at random, the one that kills its workers itself is quarantined, and no other', {
  timeout: 900_000,
  tags: 'slow',
}, async () => {
  const { breaches, calls } = await runRow(randomKills({ calls: 120, kills: 24 }), 'pawl', SEED);
  expect(breaches, `npm run chaos -- --rows 43 --seed ${SEED} --stacks pawl`).toEqual([]);
  expect(calls).toBe(120);
});

test('calls that failed are redriven once each, although the front doors that do it are killed', {
  timeout: 900_000,
  tags: 'slow',
}, async () => {
  const { breaches, calls } = await runRow(redrives({ calls: 300, perSecond: 100, kills: 2 }), 'pawl', SEED);
  expect(breaches, `npm run chaos -- --rows 49 --seed ${SEED} --stacks pawl`).toEqual([]);
  expect(calls).toBe(300);
});

test('plans keep their promises while front doors and workers are killed', {
  timeout: 900_000,
  tags: 'slow',
}, async () => {
  const { breaches, calls } = await runRow(planRow({ lanes: 8, length: 5, kills: 12 }), 'pawl', SEED);
  expect(breaches, `npm run chaos -- --rows 54 --seed ${SEED} --stacks pawl`).toEqual([]);
  expect(calls).toBe(162);
});

test('schedules keep their rules while front doors are killed and Redis is restarted', {
  timeout: 900_000,
  tags: 'slow',
}, async () => {
  const { breaches, calls } = await runRow(scheduleRow({ seconds: 45 }), 'pawl', SEED);
  expect(breaches, `npm run chaos -- --rows 48 --seed ${SEED} --stacks pawl`).toEqual([]);
  expect(calls).toBeGreaterThan(45);
});

test('delayed calls run once each and none early, although workers, front doors and Redis are killed', {
  timeout: 900_000,
  tags: 'slow',
}, async () => {
  const { breaches, calls } = await runRow(delayedRow({ calls: 200 }), 'pawl', SEED);
  expect(breaches, `npm run chaos -- --rows 50 --seed ${SEED} --stacks pawl`).toEqual([]);
  expect(calls).toBe(200);
});

test('rows are numbered once each', () => {
  expect(new Set(ROWS.map(({ number }) => number)).size).toBe(ROWS.length);
});

const ASK = { tool: 'record_once', key: 'one', params: { label: 'one' } };
const OK: Told = { kind: 'ok', output: { label: 'one' } };
const FAIL: Told = { kind: 'fail', code: 'TOOL_FAILED', message: '' };
const DOUBT: Told = { kind: 'doubt', code: 'OUTCOME_UNKNOWN', message: '' };
const INFO: Told = { kind: 'info', code: 'SILENCE', message: '' };

function told(...tellings: readonly Told[]): CallHistory {
  const history = new History();
  const call = history.invoked(ASK);
  history.accepted(call, 'id');
  for (const telling of tellings) history.told(call, telling, 'one');
  return call;
}

function effects(...fences: readonly number[]) {
  return fences.map((fence) => ({
    callId: 'id',
    key: 'one',
    attempt: 1,
    fence,
    phase: 'effect' as const,
    pid: 1,
    mono: 0,
  }));
}

test.each<[string, readonly Told[], readonly number[], readonly string[]]>([
  ['success with its effect', [OK, OK], [1], []],
  ['a doubt, whatever happened', [DOUBT, DOUBT], [1], []],
  ['an error without an effect', [FAIL], [], []],
  ['silence', [INFO], [], ['I1']],
  ['success without an effect', [OK], [], ['I5']],
  ['an error with an effect', [FAIL], [1], ['I5']],
  ['two ends', [OK, DOUBT], [1], ['I3']],
  ['two effects under rising fences', [OK], [1, 2], ['I2', 'I4']],
  ['two effects, the later one with the older fence', [OK], [2, 1], ['I2']],
  ['the result of other parameters', [{ kind: 'ok', output: { label: 'other' } }], [1], ['I5']],
])('the checker judges %s', (_, tellings, fences, invariants) => {
  const { breaches } = judge([told(...tellings)], effects(...fences), []);
  expect(breaches.map((breach) => breach.slice(0, 2))).toEqual(invariants);
});

test('the checker finds effects that no call asked for, and bounds that do not hold', () => {
  const { breaches } = judge([], effects(1), [{ invariant: 'I7', what: 'starts', value: 3, atMost: 2 }]);
  expect(breaches).toEqual(['I6: one ran and nobody had called it', 'I7: starts is 3, at most 2 allowed']);
});
