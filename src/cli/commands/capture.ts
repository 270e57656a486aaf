/** `pawl sessions capture`: a session's calls as a skill and a plan, for a person to review. */
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import type { Pawl } from '../../producer/client.ts';
import { PLAN_TOOL } from '../../shared/approvals/plan-approval.ts';
import { partitionFor } from '../../shared/calls/call-id.ts';
import { compensatedCallId } from '../../shared/calls/compensation.ts';
import { ignoreCode, reasonOf } from '../../shared/errors/failure.ts';
import { type CapturedCall, captureCalls } from '../../shared/sessions/capture.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { type CliContext, printResult, say, usageError, withPawl } from '../context.ts';
import { jsonLine, prettyJson } from '../print.ts';

interface CaptureOptions {
  readonly name?: string;
  /** The folder in which the skill's own folder is made. Default: the current one. */
  readonly out?: string;
  readonly limit: number;
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;

export async function captureSession(context: CliContext, key: string, options: CaptureOptions): Promise<number> {
  const { limit, out = '.' } = options;
  const name = options.name ?? defaultName(key);
  if (!NAME.test(name)) throw usageError(`--name must be letters, digits, _, . and -; got ${jsonLine(name)}.`);
  return withPawl(context, async (pawl) => {
    const { record } = await pawl.session(key);
    const { calls, isComplete } = await callsOf(pawl, key, limit);
    const taint = (record.taint ?? []).map(({ source }) => source);
    const capturedAt = new Date(await pawl.backend.ledger.now()).toISOString();
    const { skill, plan, leftOut } = captureCalls(calls, { name, sessionKey: key, taint, capturedAt });
    const steps = Object.keys(plan.nodes).length;
    if (steps === 0) throw usageError(`The session ${jsonLine(key)} has no call that succeeded and is still kept.`);
    const folder = resolve(context.cwd, out, name);
    const files = { skill: join(folder, 'SKILL.md'), plan: join(folder, 'plan.json') };
    await writeNew(files.plan, `${prettyJson(plan)}\n`);
    await writeNew(files.skill, skill);
    printResult(context, { ...files, steps, leftOut, isComplete }, `${files.skill}\n${files.plan}`);
    if (context.json) return;
    say(context, `${plural(steps, 'step')} for you to review: the skill is off until you set enabled: true in it`);
    if (leftOut > 0) say(context, `${plural(leftOut, 'call')} that did not succeed left out`);
    if (!isComplete) say(context, `the calls before the newest ${limit} left out: --limit names another number`);
  });
}

/** The newest calls of a session with their parameters, the oldest of them first. What was undone, and what undid it, is no step. */
async function callsOf(pawl: Pawl, sessionKey: string, limit: number) {
  const found = await pawl.calls.list({ sessionKey, limit: limit + 1 });
  const listed = found.slice(0, limit);
  // The parameters must be those that ran, because an approver may have edited them. Without them a call cannot be captured.
  const ignoreExpired = ignoreCode('CALL_NOT_COMPENSABLE');
  const read = await Promise.all(listed.map(({ callId }) => pawl.calls.readAsItRan(callId).catch(ignoreExpired)));
  const records = read.filter((record) => record !== undefined);
  const undone = new Set(records.filter(({ outcome }) => outcome?.status === 'success').map(compensatedId));
  const calls = records
    .filter((record) => compensatedId(record) === undefined && !undone.has(record.callId) && !isPlanApproval(record))
    .sort((one, other) => one.createdAtMs - other.createdAtMs)
    .map(toCapturedCall);
  return { calls, isComplete: found.length <= limit };
}

function compensatedId({ request }: CallRecord): string | undefined {
  return compensatedCallId(request.envelope);
}

function isPlanApproval({ request: { envelope } }: CallRecord): boolean {
  return envelope.toolNamespace === PLAN_TOOL.namespace && envelope.toolName === PLAN_TOOL.name;
}

function toCapturedCall({ callId, request, outcome }: CallRecord): CapturedCall {
  const { toolNamespace: namespace, toolName: name, payload } = request.envelope;
  return { tool: { namespace, name, tier: partitionFor(callId).tier }, params: payload.params, outcome };
}

/** Writes a file, and fails rather than replace an existing one. */
async function writeNew(path: string, text: string): Promise<void> {
  try {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text, { flag: 'wx' });
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST')
      throw usageError(`${path} is there already: name another skill with --name, or another folder with --out.`);
    throw usageError(`${path} cannot be written: ${reasonOf(error)}.`);
  }
}

function defaultName(sessionKey: string): string {
  return (
    sessionKey
      .replace(/[^A-Za-z0-9_.-]+/g, '-')
      .replace(/^[^A-Za-z0-9]+/, '')
      .slice(0, 128) || 'captured'
  );
}
