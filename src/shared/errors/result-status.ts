/** The six ways in which a call ends. */
export const RESULT_STATUSES = [
  'success',
  'error',
  'retriable_error',
  'retry_exhausted',
  'circuit_open',
  'timeout',
] as const;
export type ResultStatus = (typeof RESULT_STATUSES)[number];

/** The five ways that are no success. */
export type FailureStatus = Exclude<ResultStatus, 'success'>;
