/** One thing that was looked at. */
export interface Finding {
  readonly check: string;
  /** `warn`: usable, and worth knowing. */
  readonly state: 'ok' | 'warn' | 'fail';
  readonly message: string;
  /** How to mend it. */
  readonly fix?: string;
}
