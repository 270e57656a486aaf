/** The result of one check. */
export interface Finding {
  readonly check: string;
  /** `warn`: usable, but worth knowing. */
  readonly state: 'ok' | 'warn' | 'fail';
  readonly message: string;
  /** The instruction to fix it. */
  readonly fix?: string;
}
