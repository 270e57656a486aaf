/** The checkpoint that a tool leaves for its next attempt, as text. */
import { PawlError } from '../errors/failure.ts';
import { findUnserializable } from '../util/json/json-support.ts';

/** In UTF-8, as JSON. */
export const MAX_CHECKPOINT_BYTES = 64 * 1_024;

/** The checkpoint as JSON. Throws `CHECKPOINT_INVALID` with the path of what cannot be stored. */
export function formatCheckpoint(tool: string, value: unknown): string {
  if (value === undefined) throw invalid(tool, '', 'nothing');
  const found = findUnserializable(value);
  if (found !== undefined) throw invalid(tool, found.path, found.kind);
  const text = JSON.stringify(value);
  const bytes = Buffer.byteLength(text);
  if (bytes <= MAX_CHECKPOINT_BYTES) return text;
  const message = `is ${bytes} bytes of JSON; at most ${MAX_CHECKPOINT_BYTES} are stored. Keep large data in the workspace, and its path here`;
  throw checkpointError(tool, '', message);
}

function invalid(tool: string, path: string, problem: string): PawlError {
  return checkpointError(tool, path, `must be JSON-serializable; it is ${problem}`);
}

function checkpointError(tool: string, path: string, message: string): PawlError {
  return new PawlError('CHECKPOINT_INVALID', `The checkpoint of ${tool}: value${path} ${message}.`, {
    issues: [{ path: `value${path}`, message }],
  });
}
