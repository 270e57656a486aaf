import type { Scheduler } from 'fast-check';
import { ApprovalService } from '../../src/producer/approvals/approvals.ts';
import type { ResolvedTool } from '../../src/producer/tools/tool-catalogue.ts';
import { type ApprovalRequest, approvalId, type Decision } from '../../src/shared/approvals/approval.ts';
import { ApprovalHooks } from '../../src/shared/approvals/approval-hooks.ts';
import { decideRecovery } from '../../src/shared/calls/call-state.ts';
import type { ToolCallEnvelope } from '../../src/shared/calls/envelope.ts';
import { Hooks } from '../../src/shared/calls/hooks.ts';
import { resolveSettings } from '../../src/shared/config/resolve-settings.ts';
import { PawlError } from '../../src/shared/errors/failure.ts';
import type { PolicyResult } from '../../src/shared/policy/policy-request.ts';
import type { SessionRecord } from '../../src/shared/sessions/session.ts';
import type { ApprovalRecord, DecideAnswer } from '../../src/shared/store/approvals/approvals.ts';
import type { ApprovalRecords } from '../../src/shared/store/ports.ts';
import { silentLogger } from '../../src/shared/telemetry/log.ts';
import { ApprovalGate } from '../../src/workers/approvals/approval-gate.ts';
import {
  endedUse,
  type NextUse,
  type PastUse,
  reuseRefusal,
  type Use,
} from '../../src/workers/approvals/used-approvals.ts';
import type { Attempt } from '../../src/workers/attempt/attempt-state.ts';
import { type Bound, type Verdict as Judgement, judge } from '../chaos/checker.ts';
import { History } from '../chaos/history.ts';
import type { EffectLine } from '../journeys/fixtures/effect-log.ts';
import { VirtualTime } from './time.ts';

export const MINUTE_MS = 60_000;
export const LEASE_MS = 30_000;
export const CALLER = 'agent-7';

/** The first one's tool is `once`, the other's `idempotent`. */
export const KEYS = ['a', 'b'] as const;

type Key = (typeof KEYS)[number];

const session = {
  sessionKey: 'model',
  kind: 'main',
  workspaceRoot: '/nowhere',
  actorId: CALLER,
  channel: { kind: 'operator' },
} as unknown as SessionRecord;
const settings = resolveSettings({ options: {} });
const asks = { decision: 'ask', rule: 'model', reason: 'the model asks', rulings: [] } as unknown as PolicyResult;
const noHooks = new ApprovalHooks(
  new Hooks([], { schedule: () => () => {}, onFailure: () => {} }),
  async () => undefined,
);

/** The tool as one generation of workers has it. */
function publishedTool(key: Key, version: number): ResolvedTool {
  const effects = key === 'a' ? 'once' : 'idempotent';
  const named = {
    name: key,
    namespace: 'tools',
    version: `${version}.0.0`,
    tier: 'elevated',
    effects,
    annotations: {},
  };
  return { ...named, definition: `definition ${version}`, validate: () => [] } as unknown as ResolvedTool;
}

interface Call {
  readonly callId: string;
  readonly approvalId: string;
  /** As the record has them: somebody with access to Redis can change them. */
  params: Readonly<Record<string, unknown>>;
  generation: string;
  state: 'inflight' | 'done' | 'failed' | 'cancelled';
  phase: 'awaiting-approval' | 'queued' | 'running';
  fence: number;
  lost: number;
  leaseUntilMs: number;
  /** Somebody took its outcome away: what it ends with then is no word about the first run. */
  again?: true;
  /** The code it failed with. */
  code?: string;
}

interface Approval {
  state: ApprovalRecord['state'];
  readonly request: ApprovalRequest;
  decision?: Decision;
}

interface Machine {
  alive: boolean;
  version: number;
}

/** A rule that is broken on purpose. */
export type Broken = 'decide twice' | 'no gate' | 'use twice' | 'free what was not used';

export class People {
  readonly #scheduler: Scheduler;
  readonly #broken: Broken | undefined;
  readonly #time = new VirtualTime();
  readonly #history = new History();
  readonly #calls = new Map<string, Call>();
  readonly #approvals = new Map<string, Approval>();
  readonly #used = new Map<string, Use>();
  readonly #log: (EffectLine & { readonly definition: string; readonly begunAtMs: number })[] = [];
  readonly #decisions: Decision[] = [];
  readonly #bounds: Bound[] = [];
  readonly machines: Machine[] = [
    { alive: true, version: 1 },
    { alive: true, version: 1 },
  ];
  #published = 1;
  #tokens = 0;
  #looks = 0;

  constructor(scheduler: Scheduler, broken?: Broken) {
    this.#scheduler = scheduler;
    this.#broken = broken;
  }

  /** A moment that fast-check picks; for a machine that died before, there is none any more. */
  async #step(machine?: Machine): Promise<void> {
    await this.#scheduler.schedule(Promise.resolve());
    if (machine?.alive === false) await new Promise<never>(() => {});
  }

  // The records: what stands between two steps is one script.

  #records(machine?: Machine): ApprovalRecords {
    const read = async (id: string): Promise<ApprovalRecord | undefined> => {
      await this.#step(machine);
      const approval = this.#approvals.get(id);
      return approval === undefined ? undefined : { ...approval, preview: { summary: '' }, announced: true };
    };
    const decide = async (request: ApprovalRequest, to: Approval['state'], decision?: Decision) => {
      await this.#step(machine);
      const answer = this.#decide(request, to, decision);
      await this.#step(machine);
      return answer;
    };
    return {
      read,
      readBrief: async () => undefined,
      idOfCall: async (callId) => this.#calls.get(callId)?.approvalId,
      list: async () => [],
      beginPreview: async () => true,
      addPreview: async () => {},
      markAnnounced: async () => {},
      decide: ({ request }, decision) =>
        decide(request, decision.decision === 'approve' ? 'approved' : 'denied', decision),
      expire: ({ request }) => decide(request, 'expired'),
    };
  }

  /** `decide.lua` */
  #decide(request: ApprovalRequest, to: Approval['state'], decision?: Decision): DecideAnswer {
    const nowMs = this.#time.now();
    const approval = this.#approvals.get(request.id);
    const call = this.#calls.get(request.callId);
    if (approval === undefined || call === undefined) return { kind: 'gone' };
    const broken = this.#broken === 'decide twice' && to === 'approved';
    if (approval.state !== 'pending' && !broken) return { kind: 'already', state: approval.state };
    const waits = call.state === 'inflight' && call.phase === 'awaiting-approval';
    if (!waits && !broken) {
      approval.state = 'cancelled';
      return { kind: 'already', state: 'cancelled' };
    }
    if (to === 'expired' && request.expiresAtMs > nowMs)
      return { kind: 'early', remainingMs: request.expiresAtMs - nowMs };
    if (to !== 'expired' && request.expiresAtMs <= nowMs) return { kind: 'late' };
    approval.state = to;
    if (decision !== undefined) {
      approval.decision = decision;
      this.#decisions.push(decision);
    }
    if (to === 'approved') this.#queue(call);
    else this.#end(call, 'failed', 'PERMISSION_DENIED');
    return { kind: 'decided' };
  }

  #queue(call: Call): void {
    Object.assign(call, { phase: 'queued', state: 'inflight', generation: `${Number(call.generation) + 1}` });
  }

  #end(call: Call, state: Call['state'], code?: string): void {
    Object.assign(call, { state, ...(code === undefined ? {} : { code }) });
  }

  /** `settle.lua` */
  #settle(call: Call, fence: number, state: Call['state'], code?: string): void {
    if (call.state === 'inflight' && call.fence === fence) this.#end(call, state, code);
  }

  // People

  #desk(): ApprovalService {
    return new ApprovalService({
      settings,
      approvals: this.#records(),
      standingApprovals: {
        find: async () => undefined,
        add: async () => {},
        list: async () => [],
        remove: async () => undefined,
      },
      catalogue: {
        peek: (_, name) => publishedTool(name as Key, this.#published),
        find: async (_, name) => publishedTool(name as Key, this.#published),
      },
      partitions: () => [],
      audit: async () => {},
      hooks: noHooks,
      sessionOf: async () => undefined,
      now: async () => this.#time.now(),
    });
  }

  async ask(key: Key): Promise<void> {
    const params = { label: key, amount: 1 };
    const call = this.#history.invoked({ tool: key === 'a' ? 'record_once' : 'record_idempotent', key, params });
    const generation = String(this.#time.now());
    const envelope = { payload: { params }, target: { actorId: CALLER }, control: {} } as unknown as ToolCallEnvelope;
    const asked = {
      envelope,
      tool: publishedTool(key, this.#published),
      session,
      policyResult: asks,
      callId: key,
      generation,
    };
    const request = await this.#desk().requestFor(asked);
    await this.#step();
    if (!this.#calls.has(key)) {
      const id = approvalId(key, generation);
      const leaseUntilMs = 0;
      const fresh = { callId: key, approvalId: id, params, generation, fence: 0, lost: 0, leaseUntilMs };
      this.#calls.set(key, { ...fresh, state: 'inflight', phase: 'awaiting-approval' });
      this.#approvals.set(id, { state: 'pending', request });
    }
    this.#history.accepted(call, key);
  }

  /** Somebody looks, thinks, and decides on what they saw. */
  async decide(key: Key, decision: 'approve' | 'deny', by: string, amount?: number): Promise<void> {
    const id = this.#calls.get(key)?.approvalId;
    if (id === undefined) return;
    this.#looks += 1;
    const reason = `look ${this.#looks}`;
    try {
      const { digest } = await this.#desk().show(id);
      await this.#step();
      const params = amount === undefined ? {} : { params: { label: key, amount } };
      await this.#desk().decide(id, { decision, digest, by, reason, ...params });
    } catch (error) {
      if (!(error instanceof PawlError)) throw error;
      const counted = this.#decisions.filter((made) => made.reason === reason);
      this.#bound('decisions that were said to have no effect, and had one', counted.length);
    }
  }

  async cancel(key: Key): Promise<void> {
    await this.#step();
    const call = this.#calls.get(key);
    if (call?.state !== 'inflight' || call.phase === 'running') return;
    const approval = this.#approvals.get(call.approvalId);
    if (call.phase === 'awaiting-approval' && approval !== undefined) approval.state = 'cancelled';
    this.#end(call, 'cancelled');
  }

  /** Writes into Redis, without a key: queues what nobody approved, or changes what was. */
  forge(key: Key, what: 'queue' | 'params' | 'again'): void {
    const call = this.#calls.get(key);
    if (call === undefined) return;
    if (what === 'params') call.params = { ...call.params, amount: 99 };
    if (what === 'queue' && call.phase === 'awaiting-approval') this.#queue(call);
    if (what === 'again' && call.state === 'done') {
      call.again = true;
      this.#queue(call);
    }
  }

  // Workers

  crash(at: number, version?: number): void {
    const machine = this.machines[at];
    if (machine === undefined) return;
    machine.alive = false;
    this.#published = Math.max(this.#published, version ?? 1);
    this.machines[at] = { alive: true, version: version ?? machine.version };
  }

  /**
   * Takes what waits, what a dead worker left, or what it is time to look after. With `handsBack`, the attempt must wait for something
   * else, before it comes to its gate or behind it.
   */
  async work(at: number, key: Key, handsBack?: 'before' | 'behind'): Promise<void> {
    const machine = this.machines[at];
    await this.#step(machine);
    const call = this.#calls.get(key);
    if (machine === undefined || call?.state !== 'inflight') return;
    const gate = this.#gate(machine);
    if (call.phase === 'awaiting-approval')
      return void (await gate.handlePending(call.approvalId, this.#time.now(), () => undefined));
    const recovered = call.phase === 'running';
    if (recovered && call.leaseUntilMs > this.#time.now()) return;
    if (recovered) call.lost += 1;
    Object.assign(call, { phase: 'running', fence: call.fence + 1, leaseUntilMs: this.#time.now() + LEASE_MS });
    await this.#attempt(machine, gate, call, recovered, handsBack);
  }

  async #attempt(
    machine: Machine,
    gate: ApprovalGate,
    call: Call,
    recovered: boolean,
    handsBack: 'before' | 'behind' | undefined,
  ): Promise<void> {
    this.#tokens += 1;
    const { fence } = call;
    const begunAtMs = this.#time.now();
    const tool = publishedTool(call.callId as Key, machine.version);
    const begun = {
      callId: call.callId,
      envelope: { payload: { params: call.params }, target: { actorId: CALLER } },
      started: { fence, recovered, approvalId: call.approvalId, nowMs: begunAtMs, request: {} },
      registered: { tool, definition: tool.definition },
      running: { token: `token ${this.#tokens}` },
      workerId: 'worker',
      clock: this.#time,
      beganMonotonicMs: this.#time.monotonic(),
    } as unknown as Attempt;
    await this.#step(machine);
    const plan = recovered ? decideRecovery(tool.effects, call.lost > 2) : { kind: 'run-again' as const };
    if (plan.kind === 'stop') return this.#settle(call, fence, 'failed', plan.code);
    if (handsBack === 'before') return this.#handBack(machine, gate, call, begun);
    let allowed: Readonly<Record<string, unknown>>;
    try {
      allowed = this.#broken === 'no gate' ? call.params : await gate.requireApproval(begun, session, asks);
    } catch (error) {
      if (!(error instanceof PawlError)) throw error;
      this.#settle(call, fence, 'failed', error.code);
      return;
    }
    await this.#step(machine);
    if (handsBack === 'behind') return this.#handBack(machine, gate, call, begun);
    const { amount } = allowed;
    const line = { callId: call.callId, key: call.callId, attempt: fence, fence, phase: 'effect', pid: 0 } as const;
    const mono = this.#time.monotonic();
    this.#log.push({ ...line, mono, amount: Number(amount), definition: tool.definition, begunAtMs });
    await this.#step(machine);
    this.#settle(call, fence, 'done');
    await gate.release(begun, { kind: 'finished' } as Parameters<ApprovalGate['release']>[1]);
  }

  /** `postpone.lua`; the job comes again when the worker is through with it. */
  async #handBack(machine: Machine, gate: ApprovalGate, call: Call, { started, ...begun }: Attempt): Promise<void> {
    if (call.state !== 'inflight' || call.fence !== started.fence) return;
    await gate.release({ ...begun, started }, { kind: 'released' });
    await this.#step(machine);
    if (call.state === 'inflight' && call.fence === started.fence) call.phase = 'queued';
  }

  #gate(machine: Machine): ApprovalGate {
    return new ApprovalGate({
      settings,
      approvals: this.#records(machine),
      standingApprovals: { find: async () => undefined },
      ledger: { cancel: async () => ({ kind: 'gone' }) },
      used: {
        begin: async (name, use) => {
          await this.#step(machine);
          return this.#use(name, use);
        },
        end: async (name, use) => {
          await this.#step(machine);
          this.#leave(name, use);
        },
      },
      audit: () => this.#step(machine),
      hooks: noHooks,
      log: silentLogger,
      announce: async () => true,
    });
  }

  #use(name: string, use: NextUse): string | undefined {
    const before = this.#used.get(name);
    const why = before === undefined || this.#broken === 'use twice' ? undefined : reuseRefusal(before, use);
    if (why === undefined) this.#used.set(name, { state: 'running', fence: use.fence, token: use.token });
    return why;
  }

  #leave(name: string, use: PastUse): void {
    const { fence, token } = use;
    const broken = this.#broken === 'free what was not used' && !use.ended;
    const left = broken ? ({ state: 'free', fence, token } as const) : endedUse(use, this.#used.get(name));
    if (left !== undefined) this.#used.set(name, left);
  }

  // The course of things

  pass(ms: number): void {
    this.#time.reach(this.#time.now() + ms);
  }

  async happen(steps: number): Promise<void> {
    for (let step = 0; step < steps; step += 1) {
      await new Promise((resolve) => setImmediate(resolve));
      if (this.#scheduler.count() === 0) return;
      await this.#scheduler.waitOne();
    }
  }

  #bound(what: string, value: number): void {
    if (value > 0) this.#bounds.push({ invariant: 'I6', what, value, atMost: 0 });
  }

  /** Nothing else goes wrong: workers look after every call until it has ended, and its caller is told. */
  async judged(): Promise<Judgement> {
    await this.happen(Number.POSITIVE_INFINITY);
    for (const key of KEYS)
      for (let time = 0; time < 4 && this.#calls.get(key)?.state === 'inflight'; time += 1) {
        this.pass(settings.policy.approvalLimitMs);
        void this.work(0, key);
        await this.happen(Number.POSITIVE_INFINITY);
      }
    for (const call of this.#history.calls) this.#tell(call);
    this.#boundEffects();
    return judge(this.#history.calls, this.#log, this.#bounds);
  }

  #tell(asked: ReturnType<History['invoked']>): void {
    const call = this.#calls.get(asked.name);
    if (call === undefined || call.state === 'inflight') return;
    const { state, code = 'CANCELLED' } = call;
    const doubt = code === 'OUTCOME_UNKNOWN' || code === 'POISONED' || call.lost > 0 || call.again;
    if (state === 'done') this.#history.told(asked, { kind: 'ok', output: null });
    else this.#history.told(asked, { kind: doubt ? 'doubt' : 'fail', code, message: '' });
  }

  #boundEffects(): void {
    const decisionsOn = Map.groupBy(this.#decisions, (decision) => decision.approvalId);
    for (const [id, made] of decisionsOn) this.#bound(`second decisions on ${id}`, made.length - 1);
    for (const { key, amount, definition, begunAtMs } of this.#log) {
      const { approvalId: id = '' } = this.#calls.get(key) ?? {};
      const approval = this.#approvals.get(id);
      const [decision] = decisionsOn.get(id) ?? [];
      const covered =
        decision?.decision === 'approve' &&
        decision.by !== CALLER &&
        amount === (decision.params?.['amount'] ?? 1) &&
        definition === approval?.request.tool.definition &&
        begunAtMs <= decision.validUntilMs;
      this.#bound(`effects of ${key} that no decision covers`, covered ? 0 : 1);
    }
  }
}
