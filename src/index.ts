/** Pawl runs an AI agent's tool calls on a fleet of workers, each call once. */
export { type ConnectOptions, connect, type StartWorkerOptions, startWorker } from './main.ts';
export type { AgentEvent } from './producer/agents.ts';
export type { CallOptions } from './producer/call-envelope.ts';
export type { CircuitListing, CircuitSelection } from './producer/circuit-admin.ts';
// As a type: the client brings Redis' library, and half of what a tools file or a test of a tool would load.
export type { Cancellation, Pawl } from './producer/client.ts';
export { MAX_REASKS, type Reask, type ReaskOptions } from './producer/reask.ts';
export type { Resolution } from './producer/resolution.ts';
export type { ServedCall, ServedTool, ServedTools, ServeOptions } from './producer/served-tools.ts';
export { Session, type SessionEvents } from './producer/session.ts';
export type { Submission } from './producer/submission.ts';
export { acceptedForm, askCaller, type CallerAnswers, type ClientRequest, callerAnswers } from './shared/asking.ts';
export type { CircuitState } from './shared/breaker.ts';
export type { AttemptRecord, CallState, Phase, Settlement } from './shared/call.ts';
export type { ApiRole, Settings, SettingsInput, ToolPolicy } from './shared/config.ts';
export {
  contractSchemas,
  type ResultError,
  type ResultStatus,
  type ToolCallEnvelope,
  type ToolResultEnvelope,
  toolCallEnvelopeSchema,
  toolResultEnvelopeSchema,
} from './shared/envelope.ts';
export { type DecodedCall, decodeCall, type ProviderCall } from './shared/exports/decode.ts';
export type { ToolReference } from './shared/exports/names.ts';
export type { Dropped } from './shared/exports/subset.ts';
export {
  type ExportableTool,
  type ExportedTool,
  type ExportOptions,
  PROVIDERS,
  type Provider,
  type ToolExport,
  type ToolReport,
  toolsFor,
} from './shared/exports/tools-for.ts';
export { FAILURES, type FailureCode, type Issue, PawlError, ToolError } from './shared/failure.ts';
export {
  type AfterAttemptAnswer,
  type AfterAttemptEvent,
  type AfterCallAnswer,
  type AfterCallEvent,
  type ApprovalAnswer,
  type ApprovalEvent,
  type AttemptEvent,
  type BeforeAttemptAnswer,
  type BeforeCallAnswer,
  type BeforeCallEvent,
  defineHook,
  HOOK_KINDS,
  type Hook,
  type HookEvent,
  type HookKind,
  type RetryAnswer,
  type RetryEvent,
  type ShortCircuit,
  type ShortCircuitEvent,
} from './shared/hooks.ts';
export { repairParams } from './shared/repair.ts';
export { type SanitizedSchema, sanitizeSchema } from './shared/schema-sanitize.ts';
export type { OpenSession, SessionKind, SessionRecord } from './shared/session.ts';
export type { PutSkill, SkillRecord } from './shared/skill.ts';
export type { CallRecord } from './shared/store/call-record.ts';
export {
  type Answer,
  type AnyTool,
  type Artifact,
  type Capability,
  type CapabilityOwner,
  type Channel,
  type ChannelMessage,
  type Channels,
  type ContentBlock,
  type DiffTracker,
  defineTool,
  type Effects,
  type FileChange,
  type FreeformFormat,
  type InputOf,
  type Memory,
  type MemoryHit,
  type MemoryRecord,
  type MemorySearchOptions,
  type MemoryStore,
  type MemoryStoreOptions,
  type OutputOf,
  type PreviewContext,
  type ProbeAnswer,
  type Processes,
  type Question,
  type Readiness,
  type StoredMemory,
  type Tier,
  type Tool,
  type ToolAnnotations,
  type ToolBudget,
  type ToolContext,
  type ToolExample,
  type ToolIcon,
  type ToolOptions,
  type ToolPreview,
  type ToolResult,
  type ToolSpec,
  type ToolVariant,
  type Workspace,
} from './shared/tool.ts';
export {
  defineFreeformTool,
  defineUntypedTool,
  type FreeformToolSpec,
  type FunctionToolOptions,
  functionTool,
  type UntypedToolSpec,
} from './shared/tool-forms.ts';
export {
  cached,
  filtered,
  prefixed,
  renamed,
  resolveToolsets,
  type Toolset,
  type ToolsetRequest,
  toolset,
} from './shared/toolset.ts';
export { baseTools } from './workers/tools/index.ts';
export type { ToolWorker } from './workers/worker.ts';
