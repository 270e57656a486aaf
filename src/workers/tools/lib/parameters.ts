/** Parameters that several tools share, with the same descriptions. */
import { z } from 'zod';

/** The folder to look in. */
export const folder = (subject: string) =>
  z.string().min(1).default('.').describe(`${subject}, relative to the workspace root. Default: the root.`);

export const startFolder = z
  .string()
  .min(1)
  .optional()
  .describe('Folder to start in, relative to the workspace root. Default: the root.');

export const limitParameter = (subject: string, byDefault: number, max: number) =>
  z.int().min(1).max(max).default(byDefault).describe(`At most this many ${subject}. Default ${byDefault}.`);

const DEFAULT_TIME_LIMIT_MS = 120_000;
const MAX_TIME_LIMIT_MS = 600_000;

/** The time limit of a program that ends within its call. */
export const timeLimit = z
  .int()
  .min(1)
  .max(MAX_TIME_LIMIT_MS)
  .default(DEFAULT_TIME_LIMIT_MS)
  .describe(`Time limit in milliseconds, at most ${MAX_TIME_LIMIT_MS}. Default ${DEFAULT_TIME_LIMIT_MS}.`);

/** The call's own time limit is longer: a program that reaches the longest limit still returns its outputs. */
export const TIME_LIMIT_OF_CALL_MS = MAX_TIME_LIMIT_MS + 15_000;

/** The limit on each output of such a program. */
export const MAX_OUTPUT_BYTES = 64 * 1024;
