/** Pawl runs an AI agent's tool calls on a fleet of workers, each call once. */
import './node-version.ts';
import './shared/store/own-files.ts';

export { type ReliableExecution, ToolReliabilityMiddleware } from './local/reliability-middleware.ts';
export { type ConnectOptions, connect, type StartWorkerOptions, startWorker } from './main.ts';
export type { AgentEvent } from './producer/agents.ts';
export type { ApprovalDesk, ApprovalListing, ApprovalQuery, DecideOptions } from './producer/approvals.ts';
export type { AuditQuery } from './producer/audit.ts';
export type { CallOptions } from './producer/call-envelope.ts';
export type { CircuitListing, CircuitSelection } from './producer/circuit-admin.ts';
// As a type: the client brings Redis' library, and half of what a tools file or a test of a tool would load.
export type { Cancellation, Pawl } from './producer/client.ts';
export type { DispatchEvent } from './producer/dispatch.ts';
export type { EnforcedCircuit } from './producer/enforcement.ts';
export type { Follower } from './producer/follow.ts';
export type { FlushSelection, Reliability, ReliabilityWord } from './producer/operators.ts';
export type { QuestionDesk, Reply } from './producer/questions.ts';
export { MAX_REASKS, type Reask, type ReaskOptions } from './producer/reask.ts';
export type { ChangeOptions, PutOptions, Registry } from './producer/registry.ts';
export type { Resolution } from './producer/resolution.ts';
export type { ServedCall, ServedTool, ServedTools, ServeOptions } from './producer/served-tools.ts';
export { Session, type SessionEvents } from './producer/session.ts';
export type { ShardView } from './producer/shards.ts';
export type { Skills } from './producer/skills.ts';
export type { PendingSubmission, Submission, SubmitOptions } from './producer/submission.ts';
export type { Position } from './producer/timeline.ts';
export type { AgentOrder, AgentReply } from './shared/agent.ts';
export type { Amendment, ApprovalRequest, ApprovalState, Decision } from './shared/approval.ts';
export { acceptedForm, askCaller, type CallerAnswers, type ClientRequest, callerAnswers } from './shared/asking.ts';
export type { CircuitOverrides, CircuitState } from './shared/breaker.ts';
export type { AttemptRecord, CallState, Phase, Settlement } from './shared/call.ts';
export { type ClassificationOverrides, toolCallErrorClassifier } from './shared/classify.ts';
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
export { FAILURES, type FailureCode, type FailureKind, type Issue, PawlError, ToolError } from './shared/failure.ts';
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
  type HookedTool,
  type HookKind,
  type RetryAnswer,
  type RetryEvent,
  type ShortCircuit,
  type ShortCircuitEvent,
} from './shared/hooks.ts';
export type { Logger } from './shared/log.ts';
export type { Outcome } from './shared/outcome.ts';
export { repairParams } from './shared/repair.ts';
export type { RetryOverrides } from './shared/retry.ts';
export { type SanitizedSchema, sanitizeSchema } from './shared/schema-sanitize.ts';
export type { OpenSession, SessionKind, SessionRecord } from './shared/session.ts';
export type { PutSkill, SkillRecord } from './shared/skill.ts';
export type { ApprovalRecord, BriefApproval } from './shared/store/approvals.ts';
export type { AuditEntry } from './shared/store/audit.ts';
export type { CircuitChange } from './shared/store/breakers.ts';
export type { Flushed } from './shared/store/call-index.ts';
export type { CallRecord, StoredRequest } from './shared/store/call-record.ts';
export type { CatalogueContent, ToolOffer, WorkerRecord } from './shared/store/catalogue.ts';
export type { FleetMetrics } from './shared/store/fleet-metrics.ts';
export type { QuestionRecord } from './shared/store/questions.ts';
export type { WorkerEvent } from './shared/telemetry.ts';
export {
  type AgentReport,
  type AgentState,
  type Agents,
  type AgentTool,
  type Answer,
  type AnyTool,
  type Artifact,
  type CallingAgent,
  type Capability,
  type CapabilityOwner,
  type Channel,
  type ChannelMessage,
  type Channels,
  type CommittedChange,
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
  type ProcessRequest,
  type ProcessResult,
  type Progress,
  type Question,
  type Readiness,
  type StoredMemory,
  type TerminalReport,
  type TerminalRequest,
  type Terminals,
  type Tier,
  type Tool,
  type ToolAnnotations,
  type ToolBudget,
  type ToolContext,
  type ToolExample,
  type ToolIcon,
  type ToolLogger,
  type ToolOptions,
  type ToolPreview,
  type ToolResult,
  type ToolSpec,
  type ToolVariant,
  type Workspace,
  type WorkspaceChange,
  type WorkspaceEntry,
  type WorkspaceFinding,
  type WorkspaceLine,
  type WorkspaceSearch,
} from './shared/tool.ts';
export {
  defineFreeformTool,
  defineUntypedTool,
  type FreeformToolSpec,
  type FunctionToolOptions,
  functionTool,
  type UntypedToolSpec,
} from './shared/tool-forms.ts';
export type {
  CheckedSpec,
  CodeSwitchRecord,
  PutSpec,
  RegistryRecord,
  ToolSpecRecord,
} from './shared/tool-spec.ts';
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
