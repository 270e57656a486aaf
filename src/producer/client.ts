/**
 * A producer: one per process that enqueues calls. Holds the connections, knows the fleet's tools and circuits, and brings
 * results back to whoever asked.
 */
import { resolve } from 'node:path';
import { type Circuit, forcedOpen, reset } from '../shared/breaker.ts';
import type { Settlement } from '../shared/call.ts';
import type { Settings } from '../shared/config.ts';
import { defined } from '../shared/defined.ts';
import { issuesOf, type ToolCallEnvelope, type ToolResultEnvelope } from '../shared/envelope.ts';
import { failureOf, PawlError } from '../shared/failure.ts';
import { placeOf } from '../shared/fingerprint.ts';
import type { Logger } from '../shared/log.ts';
import { envelopeOf, type Outcome, resultError } from '../shared/outcome.ts';
import { type OpenSession, openSessionSchema, SESSION_TIERS, type SessionRecord } from '../shared/session.ts';
import { type Backend, openBackend } from '../shared/store/backend.ts';
import { InboxReader } from '../shared/store/inbox.ts';
import type { Place } from '../shared/store/keys.ts';
import type { CallRecord } from '../shared/store/ledger.ts';
import { type News, NewsListener } from '../shared/store/news.ts';
import { type Clock, systemClock, uuidv7 } from '../shared/time.ts';
import { TIERS } from '../shared/tool.ts';
import { CircuitView } from './circuits.ts';
import { Dispatch, type DispatchEvent, type Submission, type SubmitOptions } from './dispatch.ts';
import { Offers } from './offers.ts';
import { Results } from './results.ts';
import { Session } from './session.ts';

export const PLACES: readonly Place[] = TIERS.map((tier) => ({ tier, shard: 0 }));
/** How long a cancellation waits for the worker's answer. */
const CANCEL_ANSWER_MS = 10_000;
const MAX_SESSIONS = 10_000;

export interface PawlOptions {
  readonly settings: Settings;
  readonly log: Logger;
  /** Where implicit sessions work when `workspaceRoot` is not configured. */
  readonly defaultWorkspaceRoot: string;
  readonly clock?: Clock;
  readonly onEvent?: (event: DispatchEvent) => void;
}

export interface Cancellation {
  readonly settlement: Settlement;
  readonly result?: ToolResultEnvelope;
}

export type Resolution =
  | { readonly as: 'succeeded'; readonly output?: unknown }
  | { readonly as: 'failed' }
  | { readonly as: 'retry' };

export interface CircuitListing {
  readonly key: string;
  readonly place: Place;
  readonly circuit: Circuit;
  readonly failures: number;
}

export class Pawl {
  readonly #options: PawlOptions;
  readonly #backend: Backend;
  readonly #inbox: InboxReader;
  readonly #news: NewsListener;
  readonly #results: Results;
  readonly #offers: Offers;
  readonly #circuits: CircuitView;
  readonly #dispatch: Dispatch;
  readonly #sessions = new Map<string, SessionRecord>();
  readonly #inboxId: string;
  #closed = false;

  /** Opens the connections and waits until results can arrive. Throws `BACKEND_UNAVAILABLE` when Redis cannot be used. */
  static async open(options: PawlOptions): Promise<Pawl> {
    const { settings, log } = options;
    const backend = await openBackend({
      settings,
      name: 'producer',
      mode: 'fail-fast',
      log: (level, message, fields) => log[level](fields ?? {}, message),
    });
    return new Pawl(options, backend);
  }

  private constructor(options: PawlOptions, backend: Backend) {
    const { settings, log } = options;
    const clock = options.clock ?? systemClock;
    const onError = (error: Error) => {
      if (!this.#closed) log.debug({ error: error.message }, 'Redis connection');
    };
    this.#options = options;
    this.#backend = backend;
    this.#inboxId = uuidv7(clock).slice(-12) + Math.random().toString(36).slice(2, 8);
    this.#results = new Results(backend.ledger, this.#inboxId, onError);
    this.#offers = new Offers(backend.catalogue, onError);
    this.#circuits = new CircuitView(clock);
    this.#inbox = InboxReader.open({
      url: backend.url,
      prefix: settings.prefix,
      id: this.#inboxId,
      places: PLACES,
      onEvent: (event) => this.#results.deliver(event),
      onGap: () => this.#results.check(),
      onError,
    });
    this.#news = NewsListener.open({
      url: backend.url,
      prefix: settings.prefix,
      name: 'producer',
      onNews: (news) => this.#hear(news),
      onSubscribed: () => void this.#readCircuits().catch(onError),
      onError,
    });
    this.#dispatch = new Dispatch({
      settings,
      ledger: backend.ledger,
      offers: this.#offers,
      circuits: this.#circuits,
      results: this.#results,
      inboxId: this.#inboxId,
      clock,
      sessionOf: (envelope) => this.#sessionOf(envelope),
      onEvent: (event) => options.onEvent?.(event),
    });
  }

  get settings(): Settings {
    return this.#options.settings;
  }

  get backend(): Backend {
    return this.#backend;
  }

  // Calls

  /** Hands in a well-formed envelope. */
  submit(envelope: ToolCallEnvelope, options?: SubmitOptions): Promise<Submission> {
    this.#checkOpen();
    return this.#dispatch.submit(envelope, options);
  }

  /** Hands in an envelope from outside; a malformed one is answered with `CONTRACT_INVALID`. */
  submitUnchecked(value: unknown, options?: SubmitOptions): Promise<Submission> {
    this.#checkOpen();
    return this.#dispatch.submitUnchecked(value, options);
  }

  /** Hands in an envelope and waits for its end. */
  async dispatch(value: unknown): Promise<ToolResultEnvelope> {
    const submission = await this.submitUnchecked(value);
    return submission.kind === 'answered' ? submission.result : submission.result;
  }

  /** A call's record; undefined when there is none or it has expired. */
  read(callId: string): Promise<CallRecord | undefined> {
    return this.#backend.ledger.read(callId);
  }

  /** Waits for the end of a call that somebody handed in, maybe before this process started. */
  async result(
    callId: string,
    options: { readonly requestId?: string; readonly waitMs?: number } = {},
  ): Promise<ToolResultEnvelope | undefined> {
    const waiting = this.#results.wait(callId);
    try {
      const record = await this.#backend.ledger.read(callId, this.#inboxId);
      if (record === undefined) throw new PawlError('UNKNOWN_CALL');
      const asked = { requestId: options.requestId ?? record.request.envelope.requestId, callId: record.callId };
      if (record.outcome !== undefined && record.state !== 'inflight') return envelopeOf(record.outcome, asked);
      const outcome = await within(waiting.outcome, options.waitMs);
      return outcome === undefined ? undefined : envelopeOf(outcome, asked);
    } finally {
      waiting.stop();
    }
  }

  /** Cancels a call wherever it is. Throws `UNKNOWN_CALL`. */
  async cancel(callId: string): Promise<Cancellation> {
    const waiting = this.#results.wait(callId);
    try {
      const record = await this.#backend.ledger.read(callId);
      if (record === undefined)
        throw new PawlError('UNKNOWN_CALL', `There is no call ${callId}, or its record has expired.`);
      const asked = { requestId: record.request.envelope.requestId, callId: record.callId };
      const answer = await this.#backend.ledger.cancel(record.callId, {
        state: 'cancelled',
        beforeStart: cancelledOutcome(record, 'cancelled-before-start'),
        betweenAttempts: cancelledOutcome(record, 'cancelled'),
        ttlMs: this.settings.ttl.cancelledMs,
        inboxId: this.#inboxId,
      });
      if (answer.kind === 'gone') throw new PawlError('UNKNOWN_CALL');
      if (answer.kind === 'too-late') {
        const result = await this.result(record.callId, { waitMs: 1_000 });
        return { settlement: 'too-late', ...(result === undefined ? {} : { result }) };
      }
      const outcome = await within(waiting.outcome, CANCEL_ANSWER_MS);
      if (outcome === undefined) return { settlement: 'unsettled' };
      return { settlement: outcome.settlement ?? 'too-late', result: envelopeOf(outcome, asked) };
    } finally {
      waiting.stop();
    }
  }

  /** Gives a call with an unknown outcome a known one, or lets it run again. Throws `UNKNOWN_CALL` and `CALL_NOT_RESOLVABLE`. */
  async resolve(callId: string, resolution: Resolution): Promise<CallRecord> {
    const { ledger } = this.#backend;
    const record = await ledger.read(callId);
    if (record === undefined)
      throw new PawlError('UNKNOWN_CALL', `There is no call ${callId}, or its record has expired.`);
    const answer =
      resolution.as === 'retry'
        ? await ledger.requeue(record, 'resolved', String(Date.now()))
        : await this.#resolveAs(record, resolution);
    if (answer === 'gone') throw new PawlError('UNKNOWN_CALL');
    if (answer === 'refused') {
      throw new PawlError(
        'CALL_NOT_RESOLVABLE',
        `Only a call whose outcome is unknown can be resolved; ${callId} is ${record.state}${record.outcome?.error === undefined ? '' : ` (${record.outcome.error.code})`}.`,
      );
    }
    return (await ledger.read(callId)) ?? record;
  }

  #resolveAs(
    record: CallRecord,
    resolution: Extract<Resolution, { readonly as: 'succeeded' | 'failed' }>,
  ): Promise<'resolved' | 'refused' | 'gone'> {
    const base = {
      toolName: record.request.envelope.toolName,
      durationMs: record.readAtMs - record.createdAtMs,
      attempts: record.attempts.length,
    };
    if (resolution.as === 'succeeded') {
      const outcome: Outcome = {
        ...base,
        status: 'success',
        output: { content: resolution.output ?? null, metadata: { resolved: true } },
      };
      return this.#backend.ledger.resolve(record.callId, 'done', outcome, this.settings.ttl.doneMs);
    }
    const error = resultError(
      failureOf('TOOL_FAILED', 'Somebody found out that the effect did not take place.'),
      'error',
    );
    return this.#backend.ledger.resolve(
      record.callId,
      'failed',
      { ...base, status: 'error', error },
      this.settings.ttl.failedMs,
    );
  }

  /** Calls of all tiers, the newest first. */
  async calls(options: { readonly limit?: number; readonly sessionKey?: string } = {}): Promise<CallRecord[]> {
    const limit = options.limit ?? 50;
    const { ledger } = this.#backend;
    const ids = await Promise.all(
      PLACES.map((place) =>
        ledger.list(place, { limit, ...(options.sessionKey === undefined ? {} : { sessionKey: options.sessionKey }) }),
      ),
    );
    const records = await Promise.all(ids.flat().map((callId) => ledger.read(callId)));
    return records
      .filter((record): record is CallRecord => record !== undefined)
      .sort((a, b) => b.createdAtMs - a.createdAtMs)
      .slice(0, limit);
  }

  // Sessions

  /** Opens a session. Throws `CONTRACT_INVALID` for what cannot be one, and `UNKNOWN_SESSION` for an unknown parent. */
  async openSession(open: OpenSession = {}): Promise<Session> {
    this.#checkOpen();
    const parsed = openSessionSchema.safeParse(open);
    if (!parsed.success) {
      const issues = issuesOf(parsed.error);
      throw new PawlError(
        'CONTRACT_INVALID',
        `The session cannot be opened: ${issues.map((issue) => `${issue.path}: ${issue.message}`).join('; ')}.`,
        { issues },
      );
    }
    const { sessionKey = uuidv7(), workspaceRoot, actorId, parent, ...rest } = parsed.data;
    const above = parent === undefined ? undefined : await this.session(parent);
    const inherited = above === undefined ? {} : { agentId: above.record.agentId, tenantId: above.record.tenantId };
    const record = defined<SessionRecord>({
      ...inherited,
      ...rest,
      sessionKey,
      state: 'open',
      parent,
      actorId: actorId ?? above?.record.actorId ?? 'anonymous',
      workspaceRoot:
        workspaceRoot === undefined ? (above?.record.workspaceRoot ?? this.#workspaceRoot()) : resolve(workspaceRoot),
      createdAtMs: await this.#backend.ledger.now(),
    });
    if (above?.record.kind === 'worker' && record.kind !== 'worker')
      throw new PawlError('PERMISSION_DENIED', 'A worker session can only open worker sessions.');
    if (!(await this.#backend.sessions.create(record))) {
      const issues = [{ path: 'sessionKey', message: `is taken: ${JSON.stringify(sessionKey)}` }];
      throw new PawlError('CONTRACT_INVALID', `There is already a session ${JSON.stringify(sessionKey)}.`, { issues });
    }
    this.#remember(record);
    return new Session(this, record);
  }

  /** An open session by its key. Throws `UNKNOWN_SESSION`. */
  async session(sessionKey: string): Promise<Session> {
    const record = this.#sessions.get(sessionKey) ?? (await this.#backend.sessions.read(sessionKey));
    if (record === undefined)
      throw new PawlError('UNKNOWN_SESSION', `There is no session ${JSON.stringify(sessionKey)}.`);
    this.#remember(record);
    return new Session(this, record);
  }

  sessions(limit = 100): Promise<SessionRecord[]> {
    return this.#backend.sessions.list(limit);
  }

  /** Closes a session and those below it: nothing new is accepted, what runs is cancelled. */
  async closeSession(sessionKey: string): Promise<void> {
    const keys = await this.#backend.sessions.tree(sessionKey);
    if ((await this.#backend.sessions.read(sessionKey)) === undefined)
      throw new PawlError('UNKNOWN_SESSION', `There is no session ${JSON.stringify(sessionKey)}.`);
    for (const key of keys) {
      const closed = await this.#backend.sessions.close(key);
      if (closed !== undefined) this.#remember(closed);
    }
    for (const key of keys) {
      const records = await this.calls({ sessionKey: key, limit: 10_000 });
      await Promise.all(
        records.filter((record) => record.state === 'inflight').map((record) => this.cancel(record.callId)),
      );
    }
  }

  /** The session that an envelope names. One that nobody opened is opened as a main session of that actor. */
  #sessionOf(envelope: ToolCallEnvelope): SessionRecord | Promise<SessionRecord> {
    const known = this.#sessions.get(envelope.target.sessionKey);
    return known === undefined ? this.#findOrOpen(envelope) : usable(known);
  }

  async #findOrOpen({ target }: ToolCallEnvelope): Promise<SessionRecord> {
    const stored = await this.#backend.sessions.read(target.sessionKey);
    if (stored !== undefined) {
      this.#remember(stored);
      return usable(stored);
    }
    const { sessionKey, actorId, agentId, tenantId } = target;
    const record = defined<SessionRecord>({
      sessionKey,
      kind: 'main',
      state: 'open',
      actorId,
      agentId,
      tenantId,
      workspaceRoot: this.#workspaceRoot(),
      createdAtMs: await this.#backend.ledger.now(),
    });
    if (!(await this.#backend.sessions.create(record))) return this.#findOrOpen({ target } as ToolCallEnvelope);
    this.#remember(record);
    return record;
  }

  #workspaceRoot(): string {
    return resolve(this.settings.workspaceRoot ?? this.#options.defaultWorkspaceRoot);
  }

  #remember(record: SessionRecord): void {
    this.#sessions.delete(record.sessionKey);
    this.#sessions.set(record.sessionKey, record);
    const oldest = this.#sessions.keys().next().value;
    if (this.#sessions.size > MAX_SESSIONS && oldest !== undefined) this.#sessions.delete(oldest);
  }

  // The fleet

  /** Tools that the fleet offers, and its workers; for one session, what it may call. */
  async catalogue(sessionKey?: string) {
    const content = await this.#offers.all();
    if (sessionKey === undefined) return content;
    const { record } = await this.session(sessionKey);
    return { ...content, tools: content.tools.filter((tool) => SESSION_TIERS[record.kind].includes(tool.tier)) };
  }

  /** Circuits that ever left CLOSED. */
  async circuits(): Promise<CircuitListing[]> {
    const { breakers } = this.#backend;
    const listed = await Promise.all(
      PLACES.map(async (place) => {
        const circuits = await breakers.list(place);
        return Promise.all(
          [...circuits].map(async ([key, circuit]) => ({
            key,
            place,
            circuit,
            failures: (await breakers.window(place, key)).filter((sample) => !sample.ok).length,
          })),
        );
      }),
    );
    return listed.flat();
  }

  /** Forces a tool's circuit open, or resets it to closed (R25). Returns the circuits that were changed. */
  async setCircuit(
    action: 'force_open' | 'reset',
    select: { readonly key?: string; readonly tool?: string; readonly tenantId?: string },
    reason = 'forced by an operator',
  ): Promise<CircuitListing[]> {
    const { breakers, ledger } = this.#backend;
    const known = await this.circuits();
    const selected = known.filter(({ key }) =>
      select.key !== undefined
        ? key === select.key
        : select.tool !== undefined
          ? matchesTool(key, select.tool)
          : action === 'reset',
    );
    const targets = selected.length > 0 || action === 'reset' ? selected : await this.#circuitOfTool(select);
    const nowMs = await ledger.now();
    const changed: CircuitListing[] = [];
    for (const target of targets) {
      let current = await breakers.read(target.place, target.key);
      for (let tries = 0; tries < 10; tries += 1) {
        const next = action === 'reset' ? reset(current) : forcedOpen(current, reason, nowMs);
        const answer = await breakers.change(target.place, target.key, current, next, 0);
        current = answer.circuit;
        if (answer.changed) break;
      }
      changed.push({ ...target, circuit: current });
    }
    return changed;
  }

  async #circuitOfTool(select: {
    readonly key?: string;
    readonly tool?: string;
    readonly tenantId?: string;
  }): Promise<CircuitListing[]> {
    const name = select.tool ?? /^tool:([^@]+)/.exec(select.key ?? '')?.[1] ?? '';
    const { tools } = await this.#offers.all();
    const offer = tools.find((tool) => tool.name === name || `${tool.namespace}.${tool.name}` === name);
    if (offer === undefined)
      throw new PawlError('UNKNOWN_TOOL', `There is no tool or circuit ${JSON.stringify(select.key ?? name)}.`);
    const tenant = select.tenantId === undefined ? '' : `@${select.tenantId}`;
    return [
      {
        key: select.key ?? `tool:${offer.namespace}.${offer.name}${tenant}`,
        place: { tier: offer.tier, shard: 0 },
        circuit: { state: 'CLOSED', epoch: 0 },
        failures: 0,
      },
    ];
  }

  #hear(news: News): void {
    if (news.type === 'circuit') this.#circuits.learn(news);
    else if (news.type === 'catalogue') this.#offers.refresh();
    else if (news.type === 'session') this.#sessions.delete(news.sessionKey);
  }

  async #readCircuits(): Promise<void> {
    this.#circuits.clear();
    this.#sessions.clear();
    const nowMs = await this.#backend.ledger.now();
    for (const { key, place, circuit } of await this.circuits()) {
      const retryAfterMs = circuit.state === 'OPEN' ? circuit.openedAtMs + circuit.cooldownMs - nowMs : 0;
      this.#circuits.learn({ place, key, circuit, retryAfterMs });
    }
  }

  #checkOpen(): void {
    if (this.#closed) throw new PawlError('BACKEND_UNAVAILABLE', 'This client is closed.');
  }

  /** Ends the connections. Calls go on without this process; their results can be read by ID. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#offers.close();
    this.#results.close();
    this.#news.close();
    await this.#inbox.close();
    await this.#backend.close();
  }
}

/** The outcome of a call that was cancelled while no attempt ran. */
function cancelledOutcome(record: CallRecord, settlement: Settlement): Outcome {
  return {
    status: 'error',
    toolName: record.request.envelope.toolName,
    durationMs: record.readAtMs - record.createdAtMs,
    attempts: record.attempts.length,
    error: resultError(failureOf('CANCELLED'), 'error'),
    settlement,
  };
}

function usable(record: SessionRecord): SessionRecord {
  if (record.state === 'closed')
    throw new PawlError('SESSION_CLOSED', `The session ${JSON.stringify(record.sessionKey)} is closed.`);
  return record;
}

function matchesTool(key: string, tool: string): boolean {
  const subject = key.split('@')[0] ?? key;
  return subject === tool || subject === `tool:${tool}` || subject.endsWith(`.${tool}`);
}

async function within<T>(promise: Promise<T>, waitMs: number | undefined): Promise<T | undefined> {
  if (waitMs === undefined) return promise;
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<undefined>((end) => {
    timer = setTimeout(() => end(undefined), waitMs);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    clearTimeout(timer);
  }
}

/** For front doors that look up where a call lives. */
export function isCallId(text: string): boolean {
  return placeOf(text) !== undefined;
}
