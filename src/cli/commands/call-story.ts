/** A call's whole story, for people: the request, each attempt and wait, and the outcome. */
import { type AttemptRecord, isHarmless } from '../../shared/calls/call-state.ts';
import type { ResultError } from '../../shared/calls/envelope.ts';
import { isUnresolved, type Outcome } from '../../shared/calls/outcome.ts';
import type { ApprovalRecord } from '../../shared/store/approvals/approvals.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { CatalogueContent } from '../../shared/store/fleet/catalogue.ts';
import { qualifiedName, shortName } from '../../shared/tools/tool.ts';
import { isCompatibleVersion } from '../../shared/tools/versions.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { escapeInvisible, escapeLine, escapeLines } from '../../shared/util/text/visible-text.ts';
import { duration, moment, prettyJson } from '../print.ts';

const MAX_PARAMS_LENGTH = 400;
const MAX_OUTPUT_LENGTH = 2_000;

/** Facts beside the record of a call: the decision about it, and the tools that workers have now. */
interface StoryContext {
  readonly approval?: ApprovalRecord;
  readonly tools?: CatalogueContent['tools'];
}

export function storyOf(record: CallRecord, context: StoryContext = {}): string {
  const { request, callId } = record;
  const { envelope, tool } = request;
  const { target, payload, control } = envelope;
  return [
    `call ${callId}`,
    field('tool', `${envelope.toolNamespace}.${envelope.toolName}@${tool.version}`),
    field('state', stateText(record)),
    field('session', `${target.sessionKey} (${target.actorId})`),
    field('request', envelope.requestId),
    ...(payload.idempotencyKey === undefined ? [] : [field('key', JSON.stringify(payload.idempotencyKey))]),
    field('params', clip(JSON.stringify(payload.params), MAX_PARAMS_LENGTH)),
    ...(control.deadlineAtMs === undefined ? [] : [field('deadline', moment(control.deadlineAtMs))]),
    field('circuit', record.circuit),
    '',
    // A record's names of workers and operators, and its codes, are not signed: each of them stays on its line.
    ...historyLines(record, context).map(escapeLine),
    ...endLines(record),
  ].join('\n');
}

function field(name: string, value: string): string {
  return `  ${name.padEnd(9)} ${escapeLine(value)}`;
}

function stateText({ state, phase, readAtMs, createdAtMs, updatedAtMs, cancelRequested }: CallRecord): string {
  if (state !== 'inflight') return `${state}, ${duration(updatedAtMs - createdAtMs)} after it was submitted`;
  const cancelText = cancelRequested ? ', asked to cancel' : '';
  return `${phase ?? state} for ${duration(Math.max(0, readAtMs - updatedAtMs))}${cancelText}`;
}

/** One line for each event of the call, with its time since the submission. */
function historyLines(record: CallRecord, context: StoryContext): string[] {
  const { createdAtMs, attempts } = record;
  const offsetText = (ms: number) => `  +${duration(Math.max(0, ms - createdAtMs))}`.padEnd(12);
  const lines = [`  ${moment(createdAtMs)}`, `${offsetText(createdAtMs)}${submissionText(record)}`];
  // A call that an operator runs again is asked about again. The record names the last approval.
  const askedAtMs = context.approval?.request.createdAtMs ?? createdAtMs;
  const attemptsBeforeApproval = attempts.filter(({ finishedAtMs }) => finishedAtMs <= askedAtMs).length;
  const addApprovalAfter = (attemptsDone: number) => {
    if (attemptsDone === attemptsBeforeApproval) lines.push(...approvalLines(record, context, offsetText));
  };
  addApprovalAfter(0);
  const redrives = [...(record.redrives ?? [])];
  const addRedrives = (attemptsDone: number) => {
    for (; redrives[0] !== undefined && redrives[0].attempts <= attemptsDone; redrives.shift())
      lines.push(`${offsetText(redrives[0].atMs)}redriven by ${redrives[0].by}, after ${redrives[0].code}`);
  };
  for (const [index, attempt] of attempts.entries()) {
    addRedrives(attempt.attempt - 1);
    lines.push(
      `${offsetText(attempt.startedAtMs)}attempt ${attempt.attempt} began (fence ${attempt.fence}, ${attempt.worker})`,
    );
    lines.push(`${offsetText(attempt.finishedAtMs)}attempt ${attempt.attempt} ${attemptEndText(attempt, record)}`);
    if (attempt.completedAtMs !== undefined)
      lines.push(
        `${offsetText(attempt.completedAtMs)}${attempt.status === 'success' ? 'completed' : `failed with ${attempt.errorCode}`} by the outside system`,
      );
    if (attempt.delayMs !== undefined)
      lines.push(`${offsetText(attempt.finishedAtMs)}waited ${duration(attempt.delayMs)} for the next attempt`);
    addApprovalAfter(index + 1);
  }
  addRedrives(attempts.length);
  const unrecorded = record.lostAttempts - attempts.filter(({ status }) => status === 'lost').length;
  if (unrecorded > 0)
    lines.push(`${''.padEnd(12)}${unrecorded} of the starts left no record: the worker died or lost its connection`);
  if (record.state === 'inflight' && record.phase === 'running')
    lines.push(
      `${offsetText(record.startedAtMs ?? record.updatedAtMs)}attempt ${attempts.length + 1} runs (fence ${record.fence}, ${record.worker ?? 'a worker'})`,
    );
  if (record.state === 'inflight' && record.phase === 'pending' && record.pendingUntilMs !== undefined)
    lines.push(`${''.padEnd(12)}waits for an outside system, until ${moment(record.pendingUntilMs)} at most`);
  const missing = missingWorkerText(record, context);
  if (missing !== undefined) lines.push(`${''.padEnd(12)}${missing}`);
  if (record.outcome?.output?.metadata?.['resolved'] === true)
    lines.push(`${offsetText(record.updatedAtMs)}resolved as succeeded by an operator`);
  return lines;
}

function submissionText({ approvalId, request: { startAtMs } }: CallRecord): string {
  if (startAtMs !== undefined) return `submitted, to start at ${moment(startAtMs)}`;
  return approvalId === undefined ? 'submitted and queued' : 'submitted';
}

function approvalLines(
  { callId, approvalId, state, phase }: CallRecord,
  { approval }: StoryContext,
  offsetText: (ms: number) => string,
): string[] {
  if (approvalId === undefined) return [];
  const waits = state === 'inflight' && phase === 'awaiting-approval';
  const asked = `${waits ? 'waits for a person' : 'a person was asked'}: pawl approvals show ${waits ? callId : approvalId}`;
  return [`${''.padEnd(12)}${asked}`, ...(approval === undefined ? [] : decisionLines(approval, offsetText))];
}

function decisionLines({ state, decision, decidedAtMs }: ApprovalRecord, offsetText: (ms: number) => string): string[] {
  if (state === 'pending' || decidedAtMs === undefined) return [];
  const by = decision === undefined ? '' : ` by ${decision.by}`;
  const edited = decision?.params === undefined ? '' : ', with other parameters';
  const reason = decision?.reason === undefined ? '' : `: ${decision.reason}`;
  return [`${offsetText(decidedAtMs)}${state}${by}${edited}${reason}`];
}

/** A call that waits for a worker waits in vain while no worker has its tool, or only another line of versions. */
function missingWorkerText({ state, phase, request }: CallRecord, { tools }: StoryContext): string | undefined {
  if (tools === undefined || state !== 'inflight' || (phase !== 'queued' && phase !== 'waiting-retry'))
    return undefined;
  const name = `${request.envelope.toolNamespace}.${request.envelope.toolName}`;
  const there = tools.filter((tool) => tool.workers > 0 && qualifiedName(tool) === name);
  if (there.some(({ version }) => isCompatibleVersion(version, request.tool.version))) return undefined;
  const others = there.map(({ version }) => version).join(', ');
  return `waits for a worker that has ${name}@${request.tool.version}: ${others === '' ? 'none has it' : `those that run have ${others}`}`;
}

function attemptEndText(attempt: AttemptRecord, { request, outcome }: CallRecord): string {
  const tookMs = Math.max(0, attempt.finishedAtMs - attempt.startedAtMs);
  if (attempt.status === 'pending' || attempt.completedAtMs !== undefined)
    return `left the call to an outside system after ${duration(tookMs)}`;
  if (attempt.status === 'success') return `succeeded in ${duration(tookMs)}`;
  if (attempt.status === 'lost') return 'was lost with its worker';
  const code = attempt.errorCode ?? 'an error';
  const failed = `failed with ${code} after ${duration(tookMs)}`;
  if (attempt.inDoubt === true && !isHarmless(request.tool.effects)) return `${failed}, and may have had its effect`;
  // An unresolved call is not tried again, even if this attempt was retriable.
  return `${failed}, ${attempt.retriable && !isUnresolved(outcome) ? 'worth another try' : 'final'}`;
}

function endLines(record: CallRecord): string[] {
  const { outcome, state, expiresAtMs, freeAtMs, readAtMs, callId } = record;
  if (outcome === undefined || state === 'inflight') return [];
  const settlementText = outcome.settlement === undefined ? '' : ` (${outcome.settlement})`;
  const retentionText =
    expiresAtMs === undefined ? '' : `, kept for ${duration(Math.max(0, expiresAtMs - readAtMs))} more`;
  const freeText =
    freeAtMs === undefined
      ? ''
      : `, its key ${freeAtMs > readAtMs ? `free again in ${duration(freeAtMs - readAtMs)}` : 'free again'}`;
  return [
    '',
    escapeLine(`  ended: ${outcome.status}${settlementText}${retentionText}${freeText}`),
    ...outcomeLines(outcome, callId),
  ];
}

function outcomeLines({ error, output }: Outcome, callId: string): string[] {
  if (error !== undefined) {
    const lines = [`  ${escapeLine(error.code)}: ${escapeLines(error.message)}`];
    for (const issue of error.issues ?? []) lines.push(`    ${escapeLine(`${issue.path}: ${issue.message}`)}`);
    return [...lines, ...resolutionSteps(error, callId).map((line) => `  ${line}`)];
  }
  const display = output?.metadata?.['display'];
  const text =
    typeof display === 'string'
      ? escapeInvisible(display.replaceAll('\r\n', '\n'))
      : prettyJson(output?.content ?? null);
  return clip(text, MAX_OUTPUT_LENGTH)
    .split('\n')
    .map((line) => `  ${line}`);
}

/** The name of the call's tool, as `pawl call` takes it. */
export function toolOf({ request }: CallRecord): string {
  const { toolNamespace, toolName } = request.envelope;
  return shortName({ namespace: toolNamespace, name: toolName });
}

/** Instructions for an error that leaves the effect of its call unknown. */
export function resolutionSteps(error: ResultError, callId: string): readonly string[] {
  if (!isUnresolved({ error })) return [];
  return [`find out whether it happened, then: pawl calls resolve ${callId} --as succeeded|failed|retry`];
}

function clip(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${startOf(text, maxLength)}… [${text.length - maxLength} more characters]`;
}
