/** The outcome that an operator gives a call whose outcome is unknown. */

import { z } from 'zod';
import { failedLifetime } from '../../shared/calls/call-state.ts';
import { compensatedCallId } from '../../shared/calls/compensation.ts';
import { resultFromOutside, textFromOutside } from '../../shared/calls/completion.ts';
import { isUnresolved, type Outcome, resultError } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { toolPolicy, ttlsOf } from '../../shared/config/tool-settings.ts';
import { failureOf, ignoreCode, invalidInput } from '../../shared/errors/failure.ts';
import { WITH_RECEIVED, zodIssues } from '../../shared/schema/zod-issues.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';
import { DEFAULT_MAX_RESULT_BYTES } from '../../shared/tools/tool.ts';
import { isObject } from '../../shared/util/json/json-types.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import type { ToolCatalogue } from '../tools/tool-catalogue.ts';

export const resolutionSchema = z.discriminatedUnion('as', [
  z.strictObject({ as: z.literal('succeeded'), output: z.unknown().optional() }),
  z.strictObject({ as: z.literal('failed') }),
  z.strictObject({ as: z.literal('retry') }),
]);

export type Resolution = z.output<typeof resolutionSchema>;

interface ResolutionDeps {
  readonly ledger: Ledger;
  readonly settings: Pick<Settings, 'ttl' | 'tools'>;
  readonly catalogue: Pick<ToolCatalogue, 'find'>;
}

/** Throws `CONTRACT_INVALID` with the path of each fault. */
export function parseResolution(resolution: unknown): Resolution {
  const parsed = resolutionSchema.safeParse(isObject(resolution) ? defined(resolution) : resolution, WITH_RECEIVED);
  if (parsed.success) return parsed.data;
  throw invalidInput('The resolution is not usable', zodIssues(parsed.error), 'the resolution');
}

/**
 * The output of a call that is resolved as succeeded, in the form that its tool accepts. Without an output it is null: an operator may know
 * that the effect happened, and not what the tool returned. Throws `COMPLETION_INVALID`.
 */
export async function resolvedOutput(
  { catalogue }: Pick<ResolutionDeps, 'catalogue'>,
  { request: { envelope } }: Pick<CallRecord, 'request'>,
  resolution: Resolution,
): Promise<unknown> {
  if (resolution.as !== 'succeeded' || resolution.output === undefined) return null;
  const { toolNamespace, toolName } = envelope;
  const tool = await catalogue.find(toolNamespace, toolName).catch(ignoreCode('UNKNOWN_TOOL'));
  // A call that undoes another one has an output of another form.
  const terms = tool === undefined || compensatedCallId(envelope) !== undefined ? {} : tool;
  return (await resultFromOutside(toolName, terms, { output: resolution.output })).output;
}

/** Throws `COMPLETION_INVALID` for an output that does not fit the call's tool, or is too large. */
export async function resolveAs(
  deps: ResolutionDeps,
  record: CallRecord,
  resolution: Extract<Resolution, { readonly as: 'succeeded' | 'failed' }>,
): Promise<'resolved' | 'refused' | 'gone'> {
  const { ledger, settings } = deps;
  const { toolNamespace, toolName } = record.request.envelope;
  const tool = { namespace: toolNamespace, name: toolName };
  const ttls = ttlsOf(settings, tool);
  const base = {
    toolName,
    durationMs: record.readAtMs - record.createdAtMs,
    attempts: record.attempts.length,
  };
  if (record.state === 'inflight' || !isUnresolved(record.outcome)) return 'refused';
  if (resolution.as === 'succeeded') {
    const content = await resolvedOutput(deps, record, resolution);
    const outcome: Outcome = { ...base, status: 'success', output: { content, metadata: { resolved: true } } };
    await textFromOutside(outcome, toolPolicy(settings, tool).maxResultBytes ?? DEFAULT_MAX_RESULT_BYTES);
    return ledger.resolve(record.callId, { state: 'done', outcome, ttlMs: ttls.doneMs });
  }
  const error = resultError(failureOf('TOOL_FAILED', 'Resolved by an operator: the effect did not happen.'), 'error');
  const { ttlMs, freeAfterMs } = failedLifetime(ttls);
  const outcome: Outcome = { ...base, status: 'error', error };
  return ledger.resolve(record.callId, { state: 'failed', outcome, ttlMs, freeAfterMs });
}
