/** The result of one check. */
export interface Finding {
  readonly check: string;
  /** `warn`: usable, but worth knowing. */
  readonly state: 'ok' | 'warn' | 'fail';
  readonly message: string;
  /** The instruction to fix it; one of several on each line. */
  readonly fix?: string;
}

export function ok(check: string, message: string): Finding {
  return { check, state: 'ok', message };
}

export function warn(check: string, message: string, fix: string): Finding {
  return { check, state: 'warn', message, fix };
}

export function fail(check: string, message: string, fix: string): Finding {
  return { check, state: 'fail', message, fix };
}
