/**
 * Decides the next calls of a plan.
 *
 * running    a node begins when its dependencies have ended; a plan that needs an approval waits for it first
 * stopping   a node has failed: running calls continue to their end, and no call begins
 * undoing    as stopping; then the calls that succeeded are compensated, the last one first
 *
 * A node waits, runs, and ends as success, error or skipped. The record has each call, and each decision that the calls do not show.
 */
import type { ToolResultEnvelope } from '../calls/envelope.ts';
import { isRefusalError } from '../errors/failure.ts';
import { dependenciesOf } from './check-plan.ts';
import { decodeMembers, type GroupProgress, type MemberEnd, type NextCall } from './group.ts';
import {
  APPROVAL_KEY,
  memberKey,
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
import {
  type AcceptedNode,
  type Condition,
  conditionsOf,
  MAX_ITEMS,
  type PlanDefinition,
  type Reference,
} from './plan.ts';
import { ReadyNodes } from './ready-nodes.ts';
import { pathOf } from './references.ts';
import { RunningMembers } from './running-members.ts';

/** The functions that a plan's progress needs. */
export interface PlanDeps {
  call(key: string, node: AcceptedNode, params: unknown): NextCall;
  /** The whole output of a call that succeeded. */
  output(callId: string): Promise<unknown>;
  /** The call that undoes a call. Throws `CALL_NOT_COMPENSABLE` and `UNKNOWN_CALL`. */
  compensation(key: string, node: AcceptedNode, callId: string): Promise<NextCall>;
}

export class PlanProgress extends RunningMembers implements GroupProgress {
  readonly #definition: PlanDefinition;
  readonly #deps: PlanDeps;
  readonly #notes = new Map<string, NodeNote>();
  readonly #states = new Map<string, NodeState>();
  readonly #unknown = new Set<string>();
  /** Keys that `next` has returned and that have not begun. */
  readonly #submitted = new Set<string>();
  readonly #needs: ReadonlyMap<string, ReadonlySet<string>>;
  /** Nodes whose failure another node's `when` handles. */
  readonly #handled: ReadonlySet<string>;
  /** Nodes that another one depends on. */
  readonly #needed: ReadonlySet<string>;
  readonly #ready: ReadyNodes;
  /** Running nodes with further calls to submit, and the index of the next item. */
  readonly #nextItem = new Map<string, number>();
  /** The number of calls of a running node that have not ended. */
  readonly #remaining = new Map<string, number>();
  /** Nodes with a call that has failed. */
  readonly #failed = new Set<string>();
  readonly #values: NodeValues;
  #phase: PlanPhase | undefined;
  #isUndone = false;

  constructor(definition: PlanDefinition, fields: Readonly<Record<string, object>>, deps: PlanDeps) {
    super(decodeMembers(fields));
    this.#definition = definition;
    this.#deps = deps;
    const itemsOf = (name: string) => this.#notes.get(name)?.items ?? 0;
    this.#values = new NodeValues({ definition, members: this.members, itemsOf, output: deps.output });
    this.#phase = fields[PHASE_FIELD] as PlanPhase | undefined;
    const nodes = Object.entries(definition.nodes);
    this.#needs = new Map(nodes.map(([name, node]) => [name, dependenciesOf(node)]));
    this.#needed = new Set([...this.#needs.values()].flatMap((needs) => [...needs]));
    this.#handled = new Set(nodes.flatMap(([, node]) => conditionsOf(node).filter(handlesFailure)).map((c) => c.node));
    for (const name of definition.order) this.#restore(name, fields[nodeField(name)] as NodeNote | undefined);
    const open = definition.order.filter((name) => !isEnd(this.#states.get(name)));
    const waiting = open.filter((name) => this.#states.get(name) === 'waiting');
    this.#ready = new ReadyNodes(this.#needs, { waiting, open });
  }

  #restore(name: string, note: NodeNote | undefined): void {
    if (note !== undefined) this.#notes.set(name, note);
    const { state, unknown, keys } = nodeState(this.#node(name), name, note, this.members);
    this.#states.set(name, state);
    if (unknown) this.#unknown.add(name);
    const ends = keys.map((key) => this.members.get(key)?.end);
    if (ends.some((end) => end !== undefined && end.status !== 'success')) this.#failed.add(name);
    if (state !== 'running') return;
    this.#remaining.set(name, ends.filter((end) => end === undefined).length);
    this.#nextItem.set(name, 0);
  }

  get isOver(): boolean {
    if (this.running.size > 0 || this.#submitted.size > 0) return false;
    if (this.cancelling || this.#phase?.phase === 'stopping') return true;
    if (this.#phase?.phase === 'undoing') return this.#isUndone;
    return this.#ready.openCount === 0;
  }

  async next(): Promise<readonly NextCall[]> {
    if (this.cancelling || this.#awaitsApproval) return [];
    const calls = await this.#nextCalls();
    // A node that failed without a call has started the phase just now.
    return this.#phase?.phase === 'undoing' ? [...calls, ...(await this.#nextUndo())] : calls;
  }

  async #nextCalls(): Promise<readonly NextCall[]> {
    const calls: NextCall[] = [];
    if (this.#phase !== undefined) return calls;
    do {
      // Skipping a node may make further nodes ready.
      for (let ready = this.#ready.takeReady(); ready.length > 0; ready = this.#ready.takeReady())
        for (const name of ready) if (this.#phase === undefined) await this.#begin(name);
      for (const name of this.#nextItem.keys()) {
        if (this.#phase !== undefined || !this.#hasCapacity) return calls;
        await this.#submitCalls(name, calls);
      }
      // So may failing a node whose reference has no value.
    } while (this.#ready.hasReady && this.#phase === undefined);
    return calls;
  }

  get #hasCapacity(): boolean {
    return this.running.size + this.#submitted.size < this.#definition.concurrency;
  }

  get #awaitsApproval(): boolean {
    return this.running.has(APPROVAL_KEY);
  }

  /** Starts or skips a node whose dependencies have all ended. */
  async #begin(name: string): Promise<void> {
    const node = this.#node(name);
    const conditions = conditionsOf(node);
    const unmet = conditions.find((condition) => !this.#isMet(condition));
    if (unmet !== undefined) return this.#skip(name, `${unmet.node} is not ${unmet.is}`);
    const conditionNodes = new Set(conditions.map((condition) => condition.node));
    const missing = [...(this.#needs.get(name) ?? [])].find(
      (other) => !conditionNodes.has(other) && this.#states.get(other) !== 'success',
    );
    if (missing !== undefined) return this.#skip(name, `${missing} has not succeeded`);
    if (node.forEach !== undefined && !(await this.#expand(name, node.forEach))) return;
    this.#states.set(name, 'running');
    this.#remaining.set(name, node.forEach === undefined ? 1 : (this.#notes.get(name)?.items ?? 0));
    this.#nextItem.set(name, 0);
    this.#settleNode(name);
  }

  #endNode(name: string, state: 'success' | 'error' | 'skipped'): void {
    this.#states.set(name, state);
    this.#nextItem.delete(name);
    this.#ready.ended(name);
  }

  #isMet({ node, is }: Condition): boolean {
    if (is === 'ended') return true;
    if (is === 'unknown') return this.#unknown.has(node);
    return this.#states.get(node) === is;
  }

  #skip(name: string, skipped: string): void {
    this.#endNode(name, 'skipped');
    this.#note(name, { skipped });
  }

  #note(name: string, note: NodeNote): void {
    this.#notes.set(name, note);
    this.change(nodeField(name), note);
  }

  async #expand(name: string, forEach: Reference): Promise<boolean> {
    const read = await this.#read(name, () => this.#values.of(forEach));
    if (read === undefined) return false;
    const list = read.value;
    if (Array.isArray(list) && list.length <= MAX_ITEMS) {
      this.#values.cacheItems(name, list);
      this.#note(name, { items: list.length });
      return true;
    }
    const kind = list === undefined ? 'not there' : list === null ? list : typeof list;
    const fault = Array.isArray(list)
      ? `forEach has ${list.length} items; at most ${MAX_ITEMS} are allowed`
      : `forEach must be a list; ${pathOf(forEach)} is ${kind}`;
    this.#fail(name, fault);
    return false;
  }

  /** Ends the node without a further call. */
  #fail(name: string, message: string): void {
    this.#endNode(name, 'error');
    this.#note(name, { ...this.#notes.get(name), error: { code: 'INVALID_PARAMS', message } });
    this.#onFailure(name);
  }

  /** Adds the node's calls that may begin, as far as the plan's concurrency allows. */
  async #submitCalls(name: string, calls: NextCall[]): Promise<void> {
    const node = this.#node(name);
    const count = node.forEach === undefined ? undefined : (this.#notes.get(name)?.items ?? 0);
    for (let index = this.#nextItem.get(name) ?? 0; index < (count ?? 1); index += 1) {
      this.#nextItem.set(name, index);
      if (!this.#hasCapacity) return;
      const key = memberKey(name, count === undefined ? undefined : index);
      if (this.members.has(key) || this.#submitted.has(key)) continue;
      const call = await this.#buildCall(key, name, count === undefined ? undefined : index);
      if (call === undefined) return;
      this.#submitted.add(key);
      calls.push(call);
    }
    this.#nextItem.delete(name);
  }

  /** The node fails when a value is missing, and when its values together are more than a call may have. */
  async #buildCall(key: string, name: string, index: number | undefined): Promise<NextCall | undefined> {
    const built = await this.#read(name, async () => {
      const { params, missing } = await this.#values.params(name, index);
      return missing === undefined ? { call: this.#deps.call(key, this.#node(name), params) } : { missing };
    });
    if (built?.value.missing !== undefined) this.#fail(name, `${built.value.missing} has no value`);
    return built?.value.call;
  }

  /** Reads values for a node. The node fails when they cannot be read any more, as from a record that was flushed or has expired. */
  async #read<T>(name: string, read: () => Promise<T>): Promise<{ readonly value: T } | undefined> {
    try {
      return { value: await read() };
    } catch (error) {
      if (!isRefusalError(error)) throw error;
      this.#fail(name, error.message);
      return undefined;
    }
  }

  override began(key: string, callId: string): void {
    this.#submitted.delete(key);
    super.began(key, callId);
  }

  override ended(
    key: string,
    end: Omit<MemberEnd, 'order'>,
    callId: string | undefined,
    result?: ToolResultEnvelope,
  ): void {
    this.#submitted.delete(key);
    super.ended(key, end, callId);
    if (key.endsWith(UNDO)) return;
    if (key === APPROVAL_KEY) {
      if (end.status !== 'success') this.#enterPhase({ phase: 'stopping' });
      return;
    }
    const name = nodeOf(key);
    // A large output is not cached; it is read when a node needs it.
    const output = result?.output;
    if (output !== undefined && output.metadata?.['whole'] === undefined && this.#needed.has(name))
      this.#values.cacheOutput(key, output.content);
    this.#remaining.set(name, (this.#remaining.get(name) ?? 1) - 1);
    if (end.status !== 'success') this.#failed.add(name);
    if (end.mayHaveHappened === true) this.#unknown.add(name);
    this.#settleNode(name);
  }

  /** A call of a node that has begun, so that it can be submitted again. */
  async callOf(key: string): Promise<NextCall | undefined> {
    const node = this.#node(nodeOf(key));
    if (key.endsWith(UNDO))
      return this.#deps.compensation(key, node, this.members.get(key.slice(0, -UNDO.length))?.callId ?? '');
    const [name = '', index] = key.split(':');
    return this.#buildCall(key, name, index === undefined ? undefined : Number(index));
  }

  /** Ends the node after its last call. A failure takes effect at once, even while a `forEach` has running calls. */
  #settleNode(name: string): void {
    const hasFailed = this.#failed.has(name);
    if (this.#remaining.get(name) === 0 && this.#states.get(name) === 'running')
      this.#endNode(name, hasFailed ? 'error' : 'success');
    if (hasFailed) this.#onFailure(name);
  }

  #onFailure(name: string): void {
    const policy = this.#node(name).onFailure ?? (this.#handled.has(name) ? 'continue' : 'stop');
    if (policy === 'continue' || this.#phase !== undefined) return;
    this.#enterPhase({ phase: policy === 'undo' ? 'undoing' : 'stopping', because: name });
  }

  #enterPhase(phase: PlanPhase): void {
    this.#phase = phase;
    this.change(PHASE_FIELD, phase);
  }

  /** The next compensation. Calls are undone one at a time, the last success first. */
  async #nextUndo(): Promise<readonly NextCall[]> {
    if (this.running.size > 0 || this.#submitted.size > 0) return [];
    const open = [...this.members]
      .filter(([key, { end }]) => !key.endsWith(UNDO) && key !== APPROVAL_KEY && end?.status === 'success')
      .filter(([key]) => !this.members.has(undoKey(key)))
      .filter(([key]) => this.#node(nodeOf(key)).effects !== 'none')
      .sort(([, one], [, other]) => (other.end?.order ?? 0) - (one.end?.order ?? 0));
    for (const [key, { callId = '' }] of open) {
      try {
        const call = await this.#deps.compensation(undoKey(key), this.#node(nodeOf(key)), callId);
        this.#submitted.add(call.key);
        return [call];
      } catch (error) {
        if (!isRefusalError(error)) throw error;
        this.ended(undoKey(key), { status: 'error', code: error.code, message: error.message }, undefined);
      }
    }
    this.#isUndone = true;
    return [];
  }

  #node(name: string): AcceptedNode {
    return this.#definition.nodes[name] as AcceptedNode;
  }
}

function handlesFailure({ is }: Condition): boolean {
  return is !== 'success' && is !== 'skipped';
}

function isEnd(state: NodeState | undefined): boolean {
  return state === 'success' || state === 'error' || state === 'skipped';
}
