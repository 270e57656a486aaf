/** What the rig and its producer processes say to each other, whatever stands behind them. */

/** One call of one tool, named by its key. */
export interface Ask {
  readonly tool: string;
  readonly key: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly session?: string;
  /** The key is used in several scopes, each of which is a call of its own: its name in the history. */
  readonly name?: string;
  /** For the whole call, queue time included. */
  readonly timeoutMs?: number;
  /** A delayed call: the answer is an `info` at once. */
  readonly startAtMs?: number;
}

/**
 * What a person does about a call that waits for a decision; `amount` stands in for that parameter of the call's. An outside system
 * completes the call of a token with an output.
 */
export interface Deed {
  readonly kind: 'approve' | 'deny' | 'cancel' | 'complete';
  readonly by: string;
  readonly amount?: number;
  readonly output?: unknown;
}

/**
 * What one observer was told about a call. `ok` and `fail` are definite: it happened, it did not. `doubt` is an end that says
 * itself that the effect may have happened. `info` is no end: this observer does not know. `refused` is about who asked, not about
 * the call: another has the key, or the request did not get as far as to be one.
 */
export type Told =
  | { readonly kind: 'ok'; readonly output: unknown }
  | { readonly kind: 'fail' | 'doubt' | 'info' | 'refused'; readonly code: string; readonly message: string };

/** The answer to a call that starts later. */
export const DELAYED: Told = { kind: 'info', code: 'DELAYED', message: 'starts later' };

/** All calls that failed are to run again, so many a second. */
export interface RedriveOrder {
  readonly perSecond: number;
  /** Says how many there are, and changes nothing. */
  readonly dryRun: boolean;
}

/** A plan of lanes; each node of a lane passes on what the one before returned, and a last node needs all of them. */
export interface PlanOrder {
  readonly id: string;
  readonly lanes: number;
  readonly length: number;
  /** The last node fails, and all others are to be undone. */
  readonly undo: boolean;
}

export type Question =
  | { readonly id: number; readonly kind: 'call'; readonly ask: Ask }
  | { readonly id: number; readonly kind: 'look'; readonly callId: string }
  | { readonly id: number; readonly kind: 'fill'; readonly asks: readonly Ask[] }
  | { readonly id: number; readonly kind: 'redrive'; readonly order: RedriveOrder }
  | { readonly id: number; readonly kind: 'failed' }
  | { readonly id: number; readonly kind: 'plan'; readonly order: PlanOrder }
  | { readonly id: number; readonly kind: 'act'; readonly callId: string; readonly deed: Deed };

export type Reply =
  | { readonly kind: 'ready' }
  | { readonly kind: 'accepted'; readonly id: number; readonly callId: string }
  | { readonly kind: 'told'; readonly id: number; readonly told: Told };

/** A producer's side of the stack. `accepted` is called once Redis has acknowledged the call. */
export interface Client {
  call(ask: Ask, accepted: (callId: string) => void): Promise<Told>;
  /** What somebody who asks later is told. */
  look(callId: string): Promise<Told>;
  /** Makes calls that fail. */
  fill(asks: readonly Ask[]): Promise<void>;
  /** How many there are, as far as somebody knows. */
  redrive(order: RedriveOrder): Promise<{ readonly matched: number }>;
  /** How many calls have failed, and were not run again. */
  failed(): Promise<number>;
  /** Begins a plan, and returns its ID: `look` says of `plan:ID` how it ended. */
  plan(order: PlanOrder): Promise<string>;
  /** Resolves when it went through, rejects when it did not. */
  act(callId: string, deed: Deed): Promise<void>;
}

/** Answers the rig until it goes away. Everything that is thrown is an `info`: nobody knows. */
export function serve(client: Client): void {
  const say = (reply: Reply) => void process.send?.(reply);
  const answerTo = async (question: Question): Promise<Told> => {
    const { id } = question;
    switch (question.kind) {
      case 'call':
        return client.call(question.ask, (callId) => say({ kind: 'accepted', id, callId }));
      case 'look':
        return client.look(question.callId);
      case 'fill':
        await client.fill(question.asks);
        return { kind: 'ok', output: null };
      case 'redrive':
        return { kind: 'ok', output: await client.redrive(question.order) };
      case 'failed':
        return { kind: 'ok', output: await client.failed() };
      case 'plan':
        return { kind: 'ok', output: await client.plan(question.order) };
      case 'act':
        await client.act(question.callId, question.deed);
        return { kind: 'ok', output: null };
    }
  };
  const answer = async (question: Question) => {
    const { id } = question;
    try {
      say({ kind: 'told', id, told: await answerTo(question) });
    } catch (error) {
      const { code, message } = error as { code?: string; message?: string };
      say({ kind: 'told', id, told: { kind: 'info', code: code ?? 'ERROR', message: message ?? String(error) } });
    }
  };
  process.on('message', (question) => void answer(question as Question));
  process.on('disconnect', () => process.exit());
  say({ kind: 'ready' });
}
