/** What must compile and what must not in the settings and errors that users write: `tsc` is the test. Nothing here runs. */
import {
  FAILURES,
  type FailureCode,
  PawlError,
  type SettingsInput,
  ToolError,
  type ToolPolicy,
} from '../../src/index.ts';

export const settings: SettingsInput = {
  redisUrl: 'redis://localhost',
  reliability: { openMode: 'shadow' },
  tools: { shell: { retry: { maxAttempts: 1 }, circuit: { whenOpen: 'park' } } },
};
// @ts-expect-error there is no such setting
export const misspelt: SettingsInput = { redisURL: 'redis://localhost' };
// @ts-expect-error there is no such mode
export const mode: SettingsInput = { reliability: { openMode: 'half' } };
// @ts-expect-error there is no such answer to a conflict
export const policy: ToolPolicy = { onConflict: 'ignore' };

export const known: FailureCode = 'HTTP_503';
// @ts-expect-error there is no such code
export const unknown: FailureCode = 'HTTP_504_MAYBE';
// @ts-expect-error Pawl's own errors have codes of the catalogue
export const error = new PawlError('BROKEN');
// A tool's own codes are its own.
export const toolError = new ToolError('busy', { code: 'TILL_BUSY', retriable: true });
// @ts-expect-error the catalogue is not changed
FAILURES.TIMEOUT = FAILURES.CANCELLED;
