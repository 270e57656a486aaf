/** `ctx.checkpoint` and `ctx.lastCheckpoint` of one attempt. */
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import { formatCheckpoint } from '../../shared/tools/checkpoint.ts';
import type { ToolContext } from '../../shared/tools/tool-context.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';

export interface CheckpointDeps {
  readonly ledger: Pick<CallLedger, 'checkpoint'>;
  readonly writes: Pick<AttemptWrites, 'retry'>;
}

export function checkpointsOf(
  { callId, tool, started, running }: Attempt,
  { ledger, writes }: CheckpointDeps,
): Pick<ToolContext, 'checkpoint' | 'lastCheckpoint'> {
  let previousWrite: Promise<unknown> = Promise.resolve();
  const write = async (text: string) => {
    const answer = await writes.retry(running, () => ledger.checkpoint(callId, started.fence, text));
    if (answer === 'written') return;
    const message = 'Another attempt holds the call, or it has ended: no checkpoint was written.';
    const lost = new PawlError('LEASE_LOST', message);
    running.abort(lost);
    throw lost;
  };
  return {
    checkpoint: async (value) => {
      const text = formatCheckpoint(tool.name, value);
      // Writes are sequential: a repeated write must not overtake a later one.
      const written = previousWrite.then(() => write(text));
      previousWrite = written.catch(() => {});
      await written;
    },
    ...(started.checkpoint !== undefined && { lastCheckpoint: JSON.parse(started.checkpoint) as unknown }),
  };
}
