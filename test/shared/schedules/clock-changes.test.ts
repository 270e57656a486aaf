import { Cron } from 'croner';
import { expect, test } from 'vitest';
import { occurrencesOf } from '../../../src/shared/schedules/occurrences.ts';
import { offsetAt } from '../../../src/shared/schedules/zone-time.ts';

/** Changes of half an hour, of two hours and at midnight are among them. */
const ZONES = [
  'Europe/Berlin',
  'Europe/London',
  'America/New_York',
  'America/St_Johns',
  'America/Santiago',
  'America/Havana',
  'Africa/Cairo',
  'Asia/Beirut',
  'Australia/Lord_Howe',
  'Australia/Adelaide',
  'Pacific/Chatham',
  'Antarctica/Troll',
];
const YEAR = 2026;
const HOUR_MS = 3_600_000;

/** The moments at which a zone changes its clocks in the year. */
function changesOf(zone: string): number[] {
  const changes: number[] = [];
  for (let dayMs = Date.UTC(YEAR, 0, 1); dayMs < Date.UTC(YEAR + 1, 0, 1); dayMs += 24 * HOUR_MS) {
    if (offsetAt(zone, dayMs) === offsetAt(zone, dayMs + 24 * HOUR_MS)) continue;
    for (let atMs = dayMs; atMs < dayMs + 24 * HOUR_MS; atMs += HOUR_MS / 4)
      if (offsetAt(zone, atMs) !== offsetAt(zone, atMs + HOUR_MS / 4)) changes.push(atMs + HOUR_MS / 4);
  }
  return changes;
}

/** Wall time, `H` and `M`, so long after the moment of a change, by the clocks before it. */
function wallAt(zone: string, changeMs: number, minutes: number): string {
  const wall = new Date(changeMs + offsetAt(zone, changeMs - 1) + minutes * 60_000);
  return `${wall.getUTCMinutes()} ${wall.getUTCHours()}`;
}

function ours(cron: string, timezone: string, fromMs: number, toMs: number): string[] {
  const times = occurrencesOf({ cron, timezone });
  const found: string[] = [];
  for (let at = times.after(fromMs); at !== undefined && at <= toMs; at = times.after(at))
    found.push(new Date(at).toISOString());
  return found;
}

function theirs(cron: string, timezone: string, fromMs: number, toMs: number): string[] {
  const job = new Cron(cron, { timezone });
  const found: string[] = [];
  for (let at = job.nextRun(new Date(fromMs)); at !== null && at.getTime() <= toMs; at = job.nextRun(at))
    found.push(at.toISOString());
  return found;
}

/** Times of the day around a change: before it, within what is skipped or comes twice, and after it. */
const MINUTES_AROUND = [-60, -30, -15, 0, 15, 30, 60, 90];
const CONTINUOUS = ['*/15 * * * *', '7 * * * *', '0 */2 * * *', '*/20 2 * * *', '*/30 * * * * *'];

for (const zone of ZONES)
  test(`${zone}: schedules keep the rules of cron through both changes of clocks`, () => {
    const changes = changesOf(zone);
    expect(changes).toHaveLength(2);
    for (const change of changes) {
      const daily = MINUTES_AROUND.map((minutes) => `${wallAt(zone, change, minutes)} * * *`);
      for (const cron of [...daily, ...CONTINUOUS]) {
        const hours = cron.split(' ').length === 6 ? 0.1 : 3.5;
        const [fromMs, toMs] = [change - hours * HOUR_MS, change + hours * HOUR_MS];
        const compared = { cron, change: new Date(change).toISOString() };
        expect({ ...compared, times: ours(cron, zone, fromMs, toMs) }).toEqual({
          ...compared,
          times: theirs(cron, zone, fromMs, toMs),
        });
      }
    }
  });

test('a question mark means any value, as `*` does, also while clocks change', () => {
  const [fromMs, toMs] = [Date.UTC(YEAR, 9, 24), Date.UTC(YEAR, 9, 26)];
  expect(ours('30 ? ? * *', 'Europe/Berlin', fromMs, toMs)).toEqual(ours('30 * * * *', 'Europe/Berlin', fromMs, toMs));
});
