/** The preview of a call: its tool describes the effect before a person decides. A preview reads, and changes nothing. */
import { clip, PawlError, reasonOf } from '../../shared/errors/failure.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { AnyTool } from '../../shared/tools/tool.ts';
import { answerFault } from '../../shared/tools/tool-answers.ts';
import type { PreviewContext, ToolPreview } from '../../shared/tools/tool-variant.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import { withinMs } from '../../shared/util/wait.ts';
import { unifiedDiff } from '../workspace/diff-tracker.ts';
import { openWorkspace } from '../workspace/workspace.ts';

const PREVIEW_TIMEOUT_MS = 5_000;
const MAX_SUMMARY = 500;
const MAX_DETAILS = 256 * 1024;

/**
 * The tool's own preview. Without one, or when it fails, is invalid or takes longer than 5 s: the tool's name with its parameters, and
 * `onFault` gets the reason. Never throws.
 * The texts come from a tool and a model: escape them before they are shown.
 */
export async function previewCall(
  tool: AnyTool,
  params: unknown,
  session: Pick<SessionRecord, 'workspaceRoot'> & Partial<SessionRecord>,
  schedule: Schedule = systemSchedule,
  onFault: (fault: string) => void = () => {},
): Promise<ToolPreview> {
  const fallback = () => cutPreview({ summary: `${tool.title ?? tool.name} (${tool.tier})`, details: asText(params) });
  if (tool.preview === undefined) return fallback();
  const controller = new AbortController();
  try {
    const context = previewContext(tool, session, controller.signal);
    const run = async () => ({ result: await tool.preview?.(tool.parse(params), context) });
    const answer = await withinMs(run(), PREVIEW_TIMEOUT_MS, schedule);
    if (answer === undefined) controller.abort(new PawlError('TIMEOUT', 'The preview took too long.'));
    const fault =
      answer === undefined
        ? `preview of ${tool.name} did not end within ${PREVIEW_TIMEOUT_MS / 1_000} s.`
        : answerFault('preview', tool.name, answer.result);
    if (fault === undefined && answer?.result !== undefined) return cutPreview(answer.result);
    onFault(fault ?? '');
  } catch (error) {
    onFault(`preview of ${tool.name} failed: ${clip(reasonOf(error))}`);
  }
  return fallback();
}

function previewContext(
  tool: Pick<AnyTool, 'name' | 'needs'>,
  session: Pick<SessionRecord, 'workspaceRoot'>,
  signal: AbortSignal,
): PreviewContext {
  const readsWorkspace = tool.needs.includes('workspace:read') || tool.needs.includes('workspace:write');
  const refuse = () => {
    throw new PawlError('PERMISSION_DENIED', `${tool.name} does not declare that it needs the workspace.`);
  };
  const absent = { root: '', read: async () => refuse(), list: async () => refuse() };
  return {
    workspace: readsWorkspace ? openWorkspace(session.workspaceRoot, 'read') : absent,
    signal,
    diff: unifiedDiff,
  };
}

/** Truncates the texts of a preview. */
export function cutPreview({ summary, details }: ToolPreview): ToolPreview {
  const truncate = (text: string, max: number) => (text.length <= max ? text : `${startOf(text, max)}… [cut]`);
  return {
    summary: truncate(summary, MAX_SUMMARY),
    ...(details !== undefined && { details: truncate(details, MAX_DETAILS) }),
  };
}

function asText(params: unknown): string {
  return orUndefined(() => JSON.stringify(params, undefined, 2) ?? '') ?? 'parameters that JSON cannot say';
}
