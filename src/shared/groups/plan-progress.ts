/**
 * Decides what a plan does next.
 *
 * running    nodes begin as those that they need have ended; before, a person approves a plan that needs it
 * stopping   a node has failed: what runs goes on to its end, and nothing begins
 * undoing    likewise; then the calls that succeeded are compensated, the last one first
 *
 * A node waits, runs, and ends as success, error or skipped. The record has each call, and each decision that no call shows.
 */
import type { ToolResultEnvelope } from '../calls/envelope.ts';
import { PawlError } from '../errors/failure.ts';
import { needsOf } from './check-plan.ts';
import {
  decodedMembers,
  type GroupFields,
  type GroupProgress,
  type Member,
  type MemberEnd,
  type NextCall,
} from './group.ts';
import {
  APPROVAL_KEY,
  keyOf,
  type NodeNote,
  type NodeState,
  nodeField,
  nodeOf,
  nodeState,
  PHASE_FIELD,
  type PlanPhase,
  UNDO,
  undoKey,
} from './node-state.ts';
import { NodeValues } from './node-values.ts';
import type { AcceptedNode, Condition, PlanDefinition, PlanOutcome, Reference } from './plan.ts';
import { conditionsOf, MAX_ITEMS } from './plan.ts';
import { ReadyNodes } from './ready-nodes.ts';
import { pathOf } from './references.ts';
import { RunningMembers } from './running-members.ts';

/** The surroundings of a plan, which it asks. */
export interface PlanDeps {
  call(key: string, node: AcceptedNode, params: unknown): NextCall;
  /** The whole output of a call that succeeded. */
  output(callId: string): Promise<unknown>;
  /** The call that undoes a call. Throws `CALL_NOT_COMPENSABLE` and `UNKNOWN_CALL`. */
  compensation(key: string, node: AcceptedNode, callId: string): Promise<NextCall>;
}

export class PlanProgress implements GroupProgress {
  readonly #definition: PlanDefinition;
  readonly #deps: PlanDeps;
  readonly #members: RunningMembers;
  readonly #notes = new Map<string, NodeNote>();
  readonly #states = new Map<string, NodeState>();
  readonly #unknown = new Set<string>();
  /** Keys that were given out and have not begun. */
  readonly #started = new Set<string>();
  readonly #needs: ReadonlyMap<string, ReadonlySet<string>>;
  /** Nodes whose failure another node's `when` asks for. */
  readonly #handled: ReadonlySet<string>;
  /** Nodes that another one needs. */
  readonly #needed: ReadonlySet<string>;
  readonly #ready: ReadyNodes;
  /** Nodes that run and have calls to give out, with the place of the next one. */
  readonly #giving = new Map<string, number>();
  /** How many calls of a node that runs have not ended. */
  readonly #remaining = new Map<string, number>();
  /** Nodes with a call that has failed. */
  readonly #failed = new Set<string>();
  readonly #values: NodeValues;
  #phase: PlanPhase | undefined;
  #cancelled = false;
  #undone = false;

  constructor(definition: PlanDefinition, fields: Readonly<Record<string, object>>, deps: PlanDeps) {
    this.#definition = definition;
    this.#deps = deps;
    this.#members = new RunningMembers(decodedMembers(fields));
    const itemsOf = (name: string) => this.#notes.get(name)?.items ?? 0;
    this.#values = new NodeValues({ definition, members: this.#members.all, itemsOf, output: deps.output });
    this.#phase = fields[PHASE_FIELD] as PlanPhase | undefined;
    const nodes = Object.entries(definition.nodes);
    this.#needs = new Map(nodes.map(([name, node]) => [name, needsOf(node)]));
    this.#needed = new Set([...this.#needs.values()].flatMap((needs) => [...needs]));
    this.#handled = new Set(nodes.flatMap(([, node]) => conditionsOf(node).filter(asksForFailure)).map((c) => c.node));
    for (const name of definition.order) this.#restore(name, fields[nodeField(name)] as NodeNote | undefined);
    const open = definition.order.filter((name) => !isEnd(this.#states.get(name)));
    const waiting = open.filter((name) => this.#states.get(name) === 'waiting');
    this.#ready = new ReadyNodes(this.#needs, { waiting, open });
  }

  #restore(name: string, note: NodeNote | undefined): void {
    if (note !== undefined) this.#notes.set(name, note);
    const { state, unknown, keys } = nodeState(this.#node(name), name, note, this.#members.all);
    this.#states.set(name, state);
    if (unknown) this.#unknown.add(name);
    const ends = keys.map((key) => this.#members.all.get(key)?.end);
    if (ends.some((end) => end !== undefined && end.status !== 'success')) this.#failed.add(name);
    if (state !== 'running') return;
    this.#remaining.set(name, ends.filter((end) => end === undefined).length);
    this.#giving.set(name, 0);
  }

  get running(): ReadonlyMap<string, Member> {
    return this.#members.running;
  }

  get cancelling(): boolean {
    return this.#cancelled;
  }

  cancel(): void {
    this.#cancelled = true;
  }

  takeChanges(): GroupFields {
    return this.#members.takeChanges();
  }

  get isOver(): boolean {
    if (this.running.size > 0 || this.#started.size > 0) return false;
    if (this.#cancelled || this.#phase?.phase === 'stopping') return true;
    if (this.#phase?.phase === 'undoing') return this.#undone;
    return this.#ready.openCount === 0;
  }

  async next(): Promise<readonly NextCall[]> {
    if (this.#cancelled || this.#awaitsApproval) return [];
    if (this.#phase !== undefined) return this.#phase.phase === 'undoing' ? this.#nextUndo() : [];
    const calls: NextCall[] = [];
    do {
      // A node that is skipped may be the last need of others.
      for (let ready = this.#ready.take(); ready.length > 0; ready = this.#ready.take())
        for (const name of ready) if (this.#phase === undefined) await this.#begin(name);
      for (const name of this.#giving.keys()) {
        if (this.#phase !== undefined || !this.#hasCapacity) return calls;
        await this.#giveOut(name, calls);
      }
      // So may one whose reference has no value: no call of it ends later.
    } while (this.#ready.hasReady && this.#phase === undefined);
    return calls;
  }

  get #hasCapacity(): boolean {
    return this.running.size + this.#started.size < this.#definition.concurrency;
  }

  get #awaitsApproval(): boolean {
    return this.running.has(APPROVAL_KEY);
  }

  /** All that the node needs has ended: it runs, or is skipped. */
  async #begin(name: string): Promise<void> {
    const node = this.#node(name);
    const conditions = conditionsOf(node);
    const failed = conditions.find((condition) => !this.#holds(condition));
    if (failed !== undefined) return this.#skip(name, `${failed.node} is not ${failed.is}`);
    const asked = new Set(conditions.map((condition) => condition.node));
    const missing = [...(this.#needs.get(name) ?? [])].find(
      (other) => !asked.has(other) && this.#states.get(other) !== 'success',
    );
    if (missing !== undefined) return this.#skip(name, `${missing} has not succeeded`);
    if (node.forEach !== undefined && !(await this.#expand(name, node.forEach))) return;
    this.#states.set(name, 'running');
    this.#remaining.set(name, node.forEach === undefined ? 1 : (this.#notes.get(name)?.items ?? 0));
    this.#giving.set(name, 0);
    this.#settleNode(name);
  }

  #endNode(name: string, state: 'success' | 'error' | 'skipped'): void {
    this.#states.set(name, state);
    this.#giving.delete(name);
    this.#ready.ended(name);
  }

  #holds({ node, is }: Condition): boolean {
    const state = this.#states.get(node);
    if (is === 'ended') return true;
    if (is === 'unknown') return this.#unknown.has(node);
    return state === (is satisfies PlanOutcome);
  }

  #skip(name: string, skipped: string): void {
    this.#endNode(name, 'skipped');
    this.#note(name, { skipped });
  }

  #note(name: string, note: NodeNote): void {
    this.#notes.set(name, note);
    this.#members.change(nodeField(name), note);
  }

  async #expand(name: string, forEach: Reference): Promise<boolean> {
    const list = await this.#values.of(forEach);
    const fault = !Array.isArray(list)
      ? `forEach must be a list; ${pathOf(forEach)} is ${list === undefined ? 'not there' : typeof list}`
      : list.length > MAX_ITEMS
        ? `forEach has ${list.length} items; at most ${MAX_ITEMS} are allowed`
        : undefined;
    if (fault !== undefined) {
      this.#fail(name, fault);
      return false;
    }
    this.#values.keepItems(name, list as readonly unknown[]);
    this.#note(name, { items: (list as readonly unknown[]).length });
    return true;
  }

  /** The node ends without a further call. */
  #fail(name: string, message: string): void {
    this.#endNode(name, 'error');
    this.#note(name, { ...this.#notes.get(name), error: { code: 'INVALID_PARAMS', message } });
    this.#onFailure(name);
  }

  /** Adds the node's calls that may begin, as far as the plan's concurrency allows. */
  async #giveOut(name: string, calls: NextCall[]): Promise<void> {
    const node = this.#node(name);
    const count = node.forEach === undefined ? undefined : (this.#notes.get(name)?.items ?? 0);
    for (let index = this.#giving.get(name) ?? 0; index < (count ?? 1); index += 1) {
      this.#giving.set(name, index);
      if (!this.#hasCapacity) return;
      const key = keyOf(name, count === undefined ? undefined : index);
      if (this.#members.all.has(key) || this.#started.has(key)) continue;
      const params = await this.#paramsOf(name, count === undefined ? undefined : index);
      if (params === undefined) return;
      this.#started.add(key);
      calls.push(this.#deps.call(key, node, params));
    }
    this.#giving.delete(name);
  }

  async #paramsOf(name: string, index: number | undefined): Promise<unknown> {
    const resolved = await this.#values.params(name, index, this.#needs.get(name) ?? new Set());
    if (resolved.missing === undefined) return resolved.params;
    this.#fail(name, `${resolved.missing} has no value`);
    return undefined;
  }

  began(key: string, callId: string): void {
    this.#started.delete(key);
    this.#members.began(key, callId);
  }

  ended(key: string, end: Omit<MemberEnd, 'order'>, callId: string | undefined, result?: ToolResultEnvelope): void {
    this.#started.delete(key);
    this.#members.ended(key, end, callId);
    if (key.endsWith(UNDO)) return;
    if (key === APPROVAL_KEY) {
      if (end.status !== 'success') this.#enter({ phase: 'stopping' });
      return;
    }
    const name = nodeOf(key);
    // A large output is read when it is needed.
    const output = result?.output;
    if (output !== undefined && output.metadata?.['whole'] === undefined && this.#needed.has(name))
      this.#values.keep(key, output.content);
    this.#remaining.set(name, (this.#remaining.get(name) ?? 1) - 1);
    if (end.status !== 'success') this.#failed.add(name);
    if (end.mayHaveHappened === true) this.#unknown.add(name);
    this.#settleNode(name);
  }

  /** A call of a node that has begun, should it have to be submitted again. */
  async callOf(key: string): Promise<NextCall | undefined> {
    const node = this.#node(nodeOf(key));
    if (key.endsWith(UNDO))
      return this.#deps.compensation(key, node, this.#members.all.get(key.slice(0, -UNDO.length))?.callId ?? '');
    const [name = '', index] = key.split(':');
    const params = await this.#paramsOf(name, index === undefined ? undefined : Number(index));
    return params === undefined ? undefined : this.#deps.call(key, node, params);
  }

  /** A `forEach` that stops the plan does so with its first failure. */
  #settleNode(name: string): void {
    const hasFailed = this.#failed.has(name);
    if (this.#remaining.get(name) === 0 && this.#states.get(name) === 'running')
      this.#endNode(name, hasFailed ? 'error' : 'success');
    if (hasFailed) this.#onFailure(name);
  }

  #onFailure(name: string): void {
    const policy = this.#node(name).onFailure ?? (this.#handled.has(name) ? 'continue' : 'stop');
    if (policy === 'continue' || this.#phase !== undefined) return;
    this.#enter({ phase: policy === 'undo' ? 'undoing' : 'stopping', because: name });
  }

  #enter(phase: PlanPhase): void {
    this.#phase = phase;
    this.#members.change(PHASE_FIELD, phase);
  }

  /** One at a time, the call that succeeded last first. */
  async #nextUndo(): Promise<readonly NextCall[]> {
    if (this.running.size > 0 || this.#started.size > 0) return [];
    const open = [...this.#members.all]
      .filter(([key, { end }]) => !key.endsWith(UNDO) && key !== APPROVAL_KEY && end?.status === 'success')
      .filter(([key]) => !this.#members.all.has(undoKey(key)))
      .filter(([key]) => this.#node(nodeOf(key)).effects !== 'none')
      .sort(([, one], [, other]) => (other.end?.order ?? 0) - (one.end?.order ?? 0));
    for (const [key, { callId = '' }] of open) {
      try {
        const call = await this.#deps.compensation(undoKey(key), this.#node(nodeOf(key)), callId);
        this.#started.add(call.key);
        return [call];
      } catch (error) {
        if (!(error instanceof PawlError) || error.code === 'BACKEND_UNAVAILABLE') throw error;
        this.ended(undoKey(key), { status: 'error', code: error.code, message: error.message }, undefined);
      }
    }
    this.#undone = true;
    return [];
  }

  #node(name: string): AcceptedNode {
    return this.#definition.nodes[name] as AcceptedNode;
  }
}

function asksForFailure({ is }: Condition): boolean {
  return is !== 'success' && is !== 'skipped';
}

function isEnd(state: NodeState | undefined): boolean {
  return state === 'success' || state === 'error' || state === 'skipped';
}
