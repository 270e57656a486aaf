/** Pawl runs an AI agent's tool calls on a fleet of workers, each call once. */
import './node-version.ts';
import './shared/store/redis/own-files.ts';

export { ToolReliabilityMiddleware, toolCallErrorClassifier } from './local/reliability-middleware.ts';
export { type ConnectOptions, connect, type StartWorkerOptions, startWorker } from './main.ts';
export type { CallOptions } from './producer/calls/call-envelope.ts';
export type { CallFilter } from './producer/calls/find-calls.ts';
export type { Resolution } from './producer/calls/resolution.ts';
export type { Submission, SubmitOptions } from './producer/calls/submission.ts';
export { MAX_REASKS } from './producer/calls/validation-retry.ts';
export type { Cancellation, Pawl } from './producer/client.ts';
export type { BatchOptions, RunningBatch } from './producer/groups/session-batch.ts';
export type { PlanOptions, RunningPlan } from './producer/groups/session-plan.ts';
export type { PutSchedule } from './producer/schedules/schedule-service.ts';
export { Session, type SessionEvents } from './producer/sessions/session.ts';
export type { ApprovalRequest } from './shared/approvals/approval.ts';
export type { Phase } from './shared/calls/call-state.ts';
export type { Completion } from './shared/calls/completion.ts';
export { defineHook, type Hook } from './shared/calls/define-hook.ts';
export { acceptedForm, callerAnswers, elicit } from './shared/calls/elicitation.ts';
export {
  contractSchemas,
  type ResultError,
  type ToolCallEnvelope,
  type ToolResultEnvelope,
  toolCallEnvelopeSchema,
  toolResultEnvelopeSchema,
} from './shared/calls/envelope.ts';
export type { HookEvent } from './shared/calls/hook-events.ts';
export { HOOK_KINDS } from './shared/calls/hook-events.ts';
export type { SettingsInput } from './shared/config/config.ts';
export type { ToolPolicy } from './shared/config/tool-settings.ts';
export type { DeclaredTool } from './shared/connectors/declared-tool.ts';
export { type Issue, PawlError, ToolError } from './shared/errors/failure.ts';
export { FAILURES, type FailureCode } from './shared/errors/failure-codes.ts';
export { decodeCall } from './shared/model-tools/decode.ts';
export { PROVIDERS, type Provider, type ToolExport } from './shared/model-tools/export-types.ts';
export { repairParams } from './shared/model-tools/repair-params.ts';
export { toolsFor } from './shared/model-tools/tools-for.ts';
export type { Effects } from './shared/retries/effects.ts';
export { sanitizeSchema } from './shared/schema/schema-sanitize.ts';
export type { SessionKind } from './shared/sessions/channel-kinds.ts';
export type { OpenSession, SessionRecord } from './shared/sessions/session.ts';
export type { ApprovalRecord } from './shared/store/approvals/approvals.ts';
export type { CallRecord } from './shared/store/calls/call-record.ts';
export type { PublishedTool } from './shared/store/fleet/catalogue.ts';
export type { Logger } from './shared/telemetry/log.ts';
export type {
  Capability,
  Channel,
  ChannelMessage,
  Channels,
  MemoryStore,
  StoredMemory,
  Workspace,
} from './shared/tools/capabilities.ts';
export { defineTool } from './shared/tools/define-tool.ts';
export type {
  AnyTool,
  InputOf,
  OutputOf,
  Readiness,
  Tier,
  Tool,
  ToolAnnotations,
  ToolOptions,
  ToolSpec,
} from './shared/tools/tool.ts';
export type { Progress, ToolContext } from './shared/tools/tool-context.ts';
export { defineFreeformTool, defineUntypedTool, functionTool } from './shared/tools/tool-forms.ts';
export type { ProbeAnswer, ToolResult } from './shared/tools/tool-result.ts';
export type { ToolPreview } from './shared/tools/tool-variant.ts';
export { cached, filtered, prefixed, renamed, resolveToolsets, type Toolset, toolset } from './shared/tools/toolset.ts';
/** The types behind these names, as `pawl/types` has them: a compiler that writes declarations finds them here. */
export type * as types from './types.ts';
export { baseTools } from './workers/tools/index.ts';
export type { ToolWorker } from './workers/worker.ts';
