/**
 * What running calls asks of the records, whatever keeps them: Redis for a fleet, one process for runs without a fleet.
 */
import type { Breakers } from './breakers.ts';
import type { Ledger } from './ledger.ts';

export type CallLedger = Pick<
  Ledger,
  'claim' | 'begin' | 'settle' | 'postpone' | 'tell' | 'cancel' | 'read' | 'outcome' | 'now'
>;

export type CircuitRecords = Pick<Breakers, 'addFailure' | 'change' | 'read' | 'list' | 'window'>;
