/** The rules that a schedule's owner chooses. They stand apart, so that commands list them without loading the cron parser. */

/** The rule for an occurrence while the call of the one before it is still in flight. */
export const OVERLAPS = ['skip', 'queue', 'cancel-previous'] as const;
export type Overlap = (typeof OVERLAPS)[number];

/** The rule for occurrences that no front door could start in time. */
export const MISSED_RULES = ['skip', 'run-latest', 'run-all'] as const;
export type MissedRule = (typeof MISSED_RULES)[number];
