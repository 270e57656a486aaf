/**
 * The effects of a tool say what a second run of the same call would do.
 * `none` reads only · `idempotent` same end state · `keyed` harmless with `ctx.idempotencyKey` sent downstream ·
 * `probe` answerable through the tool's `probe` · `once` dangerous.
 */
export const EFFECTS = ['none', 'idempotent', 'keyed', 'probe', 'once'] as const;
export type Effects = (typeof EFFECTS)[number];
