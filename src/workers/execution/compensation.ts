/** Runs a tool's `compensate` instead of its `run`. */
import { type CallOf, checkCompensation, recordedResult } from '../../shared/calls/compensation.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { AnyTool } from '../../shared/tools/tool.ts';
import { answerFault } from '../../shared/tools/tool-answers.ts';
import type { Attempt, RegisteredTool } from '../attempt/attempt-state.ts';

/** A tool that runs `compensate` to undo the call. Throws `CALL_NOT_COMPENSABLE` and `UNKNOWN_CALL`. */
export async function compensatingTool(
  { envelope, registered }: Attempt,
  callId: string,
  callOf: CallOf | undefined,
): Promise<Pick<RegisteredTool, 'tool' | 'validateOutput'>> {
  const call = await callOf?.(callId);
  if (call === undefined) throw new PawlError('UNKNOWN_CALL', `There is no record of the call ${callId} any more.`);
  checkCompensation(envelope, call);
  const { compensate, probe: _, ready: __, ...tool }: AnyTool = registered.tool;
  if (compensate === undefined)
    throw new PawlError('CALL_NOT_COMPENSABLE', `${tool.name} has no compensate: nothing can undo its calls.`);
  const result = recordedResult(call.outcome ?? {});
  const compensating: AnyTool = {
    ...tool,
    run: async (params, ctx) => {
      const fault = answerFault('compensate', tool.name, await compensate(params, result, ctx));
      if (fault !== undefined) throw new PawlError('RESULT_INVALID', fault);
      return { output: { compensated: callId }, display: `undid ${callId}` };
    },
  };
  return { tool: compensating, validateOutput: undefined };
}
