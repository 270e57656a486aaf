/**
 * The common part of all adapters: a session's tools in a provider's form, and one path from a model's call to the answer that the
 * model reads. A wrong call is explained to the model at most twice in a row for a tool. Then the session's owner is notified.
 */
import type { ResultError, ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { reasonOfSoftFailure, refusal } from '../../shared/calls/outcome.ts';
import type { Issue, PawlError } from '../../shared/errors/failure.ts';
import type { ProviderCall } from '../../shared/model-tools/decode.ts';
import {
  EXPORT_OPTION_NAMES,
  type ExportedTool,
  type ExportOptions,
  type Provider,
  type ToolExport,
} from '../../shared/model-tools/export-types.ts';
import { parametersOf } from '../../shared/model-tools/provider-refusals.ts';
import { plainParameters } from '../../shared/model-tools/tools-for.ts';
import type { JsonSchema } from '../../shared/schema/json-schema.ts';
import { checkMembers, checkObject, invalidArgument } from '../../shared/schema/known-members.ts';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { asText, quoteValue } from '../../shared/util/text/quote-value.ts';
import { uuidv7 } from '../../shared/util/time.ts';
import type { CallOptions } from '../calls/call-envelope.ts';
import { listIssues } from '../calls/params.ts';
import type { Session, SessionEvents } from '../sessions/session.ts';
import { identifierOf, ModelCalls, type ModelResponse, markedId, turnIdOf } from './model-calls.ts';
import { hasImages, type ModelContent, modelContent, textOf } from './model-content.ts';

export type { ModelContent } from './model-content.ts';

/** A model may correct a call this often before the adapter gives up. */
const MAX_REASKS = 2;

export interface AdapterOptions extends ExportOptions {
  /** Receives the events of calls while they run. */
  readonly onEvent?: (event: CallNotice) => void;
  /** The model got a tool's parameters wrong three times in a row. */
  readonly onGivenUp?: (tool: string, message: string) => void;
  /**
   * The turn that calls belong to, for `perTurn` budgets and `ctx.turnId`. A function is asked at each call; its turn, like one that is
   * given to `run`, covers one response of the model, in which an ID names one call. A text covers all responses of the adapter.
   */
  readonly turnId?: string | (() => string | undefined);
  /** The text of a result is truncated to this size for the model, and marked; the call's own result stays whole. Default 65536. */
  readonly maxOutputBytes?: number;
  /** Whether results may hold images. False names them instead, for servers that take none in the result of a tool. Default: true. */
  readonly images?: boolean;
}

const NOTICES = ['progress', 'pending', 'retrying', 'approval-requested'] as const;

export type CallNotice = {
  [Type in (typeof NOTICES)[number]]: { readonly type: Type } & SessionEvents[Type][0];
}[(typeof NOTICES)[number]];

export interface ModelAnswer {
  /** The content for the model, at least one part. Errors consist of text. */
  readonly content: readonly ModelContent[];
  /** The texts of the content, without its images. */
  readonly text: string;
  readonly isError: boolean;
  /** Absent when the call could not be decoded, so that none was made. */
  readonly result?: ToolResultEnvelope;
}

type Refusal = Pick<ResultError, 'code' | 'message'> & { readonly issues?: readonly Issue[] | undefined };

export interface ModelCallOptions {
  /** The model's ID of the call: the same response of a model, run again, gives the same results. */
  readonly toolCallId?: string | undefined;
  /** Overrides the adapter's own `turnId`. */
  readonly turnId?: string | undefined;
  /** Aborting cancels the call. */
  readonly signal?: AbortSignal | undefined;
}

/** The origin of a call, as far as the adapter knows it. */
export interface CallSource extends ModelCallOptions {
  /** The object that holds the call or identifies its response, as the library gave it. In the same object, an ID names one call. */
  readonly callObject?: object | undefined;
  /**
   * The library's name of the model's response: the same whenever that response is run. Two responses of one adapter may have the same
   * name, unless `callObject` is absent.
   */
  readonly responseName?: string | undefined;
  /** The response of the model that holds the call. */
  readonly response?: ModelResponse | undefined;
  /** The place of the call in its response. It names a call without an ID where the turn names the response. */
  readonly index?: number | undefined;
}

/** The ID of a call as a text. Some model servers leave it out, or write null or a number. */
export function callIdOf(id: unknown): string {
  return id === undefined || id === null ? '' : asText(id);
}

/** The call of a function, with arguments as a library gives them: each declares them as another type. */
export function functionCall(name: string, args: unknown): ProviderCall {
  return { kind: 'function', name, arguments: args as string };
}

export class ModelTools {
  readonly exported: ToolExport;
  readonly #session: Session;
  readonly #provider: Provider;
  readonly #options: AdapterOptions;
  readonly #invalidCounts = new Map<string, number>();
  readonly #calls: ModelCalls;
  /** IDs for calls that came without one. */
  readonly #ownIds = new WeakMap<object, string>();

  /** `fixed` are options that the provider's form needs. Throws `CONTRACT_INVALID` for what is no session and for options of another type. */
  static async create(
    session: Session,
    provider: Provider,
    given: AdapterOptions = {},
    fixed: AdapterOptions = {},
  ): Promise<ModelTools> {
    if (typeof session?.toolsFor !== 'function')
      throw invalidArgument('session', `must be a session, as \`openSession\` returns it; got ${quoteValue(session)}`);
    checkMembers('options', given, OPTION_NAMES);
    checkOptions(given);
    const options = { ...given, ...fixed };
    return new ModelTools(session, provider, await session.toolsFor(provider, exportOptionsOf(options)), options);
  }

  private constructor(session: Session, provider: Provider, exported: ToolExport, options: AdapterOptions) {
    this.#session = session;
    this.#provider = provider;
    this.exported = exported;
    this.#options = options;
    this.#calls = new ModelCalls(session);
  }

  /**
   * Runs the calls among the blocks of one response of the model, which come together; `path` names the list. Rejects with
   * `CONTRACT_INVALID`, before any call runs, for what is no list of blocks.
   */
  async respond<Block extends object, Answer>(
    path: string,
    blocks: readonly Block[],
    options: ModelCallOptions = {},
    run: (block: Block, source: CallSource) => Promise<Answer> | undefined,
  ): Promise<Answer[]> {
    if (!Array.isArray(blocks)) throw invalidArgument(path, `must be a list; got ${quoteValue(blocks)}`);
    for (const [index, block] of blocks.entries()) checkObject(`${path}[${index}]`, block);
    checkMembers('options', options, CALL_OPTION_NAMES);
    checkTurn('options.turnId', options.turnId);
    return this.#calls.respond((response) => {
      const answers = blocks.map((block, index) => run(block, { ...options, response, index }));
      return Promise.all(answers.filter((answer) => answer !== undefined));
    });
  }

  /** Runs a model's call to its end. */
  async answer(call: ProviderCall, options: CallSource = {}): Promise<ModelAnswer> {
    const running = this.run(call, options);
    for (;;) {
      const next = await running.next();
      if (next.done === true) return next.value;
    }
  }

  /** Runs a model's call and yields its events meanwhile. Rejects only when Redis is out of reach. */
  async *run(call: ProviderCall, source: CallSource = {}): AsyncGenerator<CallNotice, ModelAnswer> {
    const { turnId, isOwn } = this.#turnOf(source);
    const { signal } = source;
    const toolName = 'name' in call ? call.name : call.kind;
    const explainedCount = this.#invalidCounts.get(toolName) ?? 0;
    const explain = (error: Refusal, envelope?: ToolResultEnvelope) =>
      this.#explain(toolName, error, explainedCount, envelope);
    let result: ToolResultEnvelope;
    try {
      const { namespace, name, params } = await this.#session.decode(this.exported, call);
      const options = defined({ namespace, turnId, signal });
      const run = (toolCallId?: string) => this.#runWithNotices(name, params, defined({ ...options, toolCallId }));
      const origin = this.#origin(source, isOwn);
      result = yield* origin === undefined
        ? run()
        : this.#calls.run({ namespace, name, params, turnId, ...origin }, run);
    } catch (error) {
      if (!isPawlError(error) || error.code === 'BACKEND_UNAVAILABLE') throw error;
      return errorAnswer(await explain(error));
    }
    if (result.status === 'success') {
      this.#invalidCounts.delete(toolName);
      const { maxOutputBytes, images } = this.#options;
      const content = modelContent(result, maxOutputBytes, images);
      // The tool ran, and reports that it did not succeed.
      const isError = result.output.metadata?.['success'] === false;
      const text = textOf(content);
      // Anthropic refuses a request with an empty error.
      if (isError && text.trim() === '' && !hasImages(content))
        return { ...errorAnswer(reasonOfSoftFailure(result.output)), result };
      return { content, text, isError, result };
    }
    return { ...errorAnswer(await explain(result.error, result)), result };
  }

  /** Undefined for a call that nothing names, so that it is a new one. */
  #origin({ toolCallId, responseName, callObject, response, index }: CallSource, isTurnOwn: boolean) {
    if (toolCallId === undefined || toolCallId === '') {
      if (isTurnOwn && index !== undefined) return { toolCallId: `call-${index}`, isNamed: true };
      if (callObject === undefined) return undefined;
      return { toolCallId: getOrInsert(this.#ownIds, callObject, () => uuidv7()), isNamed: true };
    }
    const isNamed = isTurnOwn || (responseName !== undefined && callObject === undefined);
    const id = responseName === undefined ? identifierOf(toolCallId) : markedId(toolCallId, responseName);
    return { toolCallId: id, isNamed, callObject, response };
  }

  /** The turn of a call, and whether it covers this response alone. Some servers name each response by an empty text, which is no name. */
  #turnOf({ turnId: given }: CallSource): { readonly turnId: string | undefined; readonly isOwn: boolean } {
    const { turnId: option } = this.#options;
    const ownTurn = given || (typeof option === 'function' ? option() : undefined);
    if (ownTurn) return { turnId: turnIdOf(ownTurn), isOwn: true };
    return { turnId: typeof option === 'string' && option !== '' ? turnIdOf(option) : undefined, isOwn: false };
  }

  async *#runWithNotices(
    name: string,
    params: Readonly<Record<string, unknown>>,
    options: CallOptions,
  ): AsyncGenerator<CallNotice, ToolResultEnvelope> {
    const { events } = this.#session;
    const notices: CallNotice[] = [];
    let callId: string | undefined;
    let resume = () => {};
    const onNotice = (notice: CallNotice) => {
      // Notices may come before the call has its ID. Later ones of other calls must not wake this one.
      if (callId !== undefined && notice.callId !== callId) return;
      notices.push(notice);
      resume();
    };
    const listeners = NOTICES.map((type) => {
      const listener = (event: object) => onNotice({ type, ...event } as CallNotice);
      return { type, listener } as const;
    });
    for (const { type, listener } of listeners) events.on(type, listener);
    try {
      const submission = await this.#session.submit(name, params, options);
      if (submission.kind === 'answered') return submission.result;
      callId = submission.callId;
      let hasEnded = false;
      const ended = submission.result.finally(() => {
        hasEnded = true;
        resume();
      });
      ended.catch(() => {});
      for (;;) {
        for (const notice of notices.splice(0)) {
          if (notice.callId !== callId) continue;
          this.#session.inform('onEvent', this.#options.onEvent, notice);
          yield notice;
        }
        if (hasEnded) return await ended;
        // A race with the end would leave something with it for each notice.
        if (notices.length === 0) await new Promise<void>((resolve) => (resume = resolve));
      }
    } finally {
      for (const { type, listener } of listeners) events.off(type, listener);
    }
  }

  /** The refusal as the model reads it, with the schema as long as it may try again. `corrected`: how often it was explained before. */
  async #explain(
    toolName: string,
    { code, message, issues = [] }: Refusal,
    explainedCount: number,
    result: ToolResultEnvelope | undefined,
  ): Promise<string> {
    const text = `${code}: ${listIssues({ message, issues })}`;
    // Parameters that follow the schema can be refused as well, such as a binary file to `read`. Then the message explains it alone.
    if (code !== 'INVALID_PARAMS' || issues.length === 0) return text;
    // Wrong calls of one response count once: the model had not read the first explanation when it made the others.
    const invalidCount = explainedCount + 1;
    const isNew = invalidCount > (this.#invalidCounts.get(toolName) ?? 0);
    if (isNew) this.#invalidCounts.set(toolName, invalidCount);
    if (invalidCount > MAX_REASKS) {
      const ids = { requestId: uuidv7(), toolName };
      if (isNew) await this.#giveUp(toolName, message, result ?? refusal({ code, message, issues }, ids));
      return `${text}\nDo not call ${toolName} again: its parameters were wrong ${invalidCount} times in a row.`;
    }
    // The fleet may run a newer version than the exported one, so the schema is read again.
    const { tools } = await this.#session.toolsFor(this.#provider, exportOptionsOf(this.#options));
    const tool = [...tools, ...this.exported.tools].find((each) => each['name'] === toolName) ?? {};
    return `${text}\nCall ${toolName} again with parameters that follow this schema: ${JSON.stringify(this.shownParameters(tool))}`;
  }

  /** The parameters of a tool as the model is shown them. The form of MCP goes to libraries that talk to all providers. */
  shownParameters(tool: ExportedTool): JsonSchema | undefined {
    const parameters = parametersOf(tool);
    return parameters === undefined || this.#provider !== 'mcp' ? parameters : plainParameters(parameters);
  }

  /** Notifies the program and the session above, as `callWithReask` does. */
  async #giveUp(toolName: string, message: string, result: ToolResultEnvelope): Promise<void> {
    const { onGivenUp } = this.#options;
    this.#session.inform('onGivenUp', onGivenUp && ((tool: string) => onGivenUp(tool, message)), toolName);
    await this.#session.emitInvalidParams({ toolName: result.toolName, reasks: MAX_REASKS, result });
  }
}

function exportOptionsOf({ strict, priority, native }: AdapterOptions): ExportOptions {
  return defined({ strict, priority, native } satisfies Record<keyof ExportOptions, unknown>);
}

/** `preliminary` is an option of the AI SDK's adapter. */
const OPTION_NAMES = [
  ...EXPORT_OPTION_NAMES,
  ...Object.keys({
    onEvent: true,
    onGivenUp: true,
    turnId: true,
    maxOutputBytes: true,
    images: true,
    preliminary: true,
  } satisfies Record<Exclude<keyof AdapterOptions, keyof ExportOptions> | 'preliminary', true>),
];

const CALL_OPTION_NAMES = Object.keys({
  toolCallId: true,
  turnId: true,
  signal: true,
} satisfies Record<keyof ModelCallOptions, true>);

/** Otherwise a model would read of the program's mistake, or all of an output would be cut. */
function checkOptions({ turnId, maxOutputBytes }: AdapterOptions): void {
  if (typeof turnId !== 'function') checkTurn('options.turnId', turnId);
  if (maxOutputBytes !== undefined && !(typeof maxOutputBytes === 'number' && maxOutputBytes >= 1))
    throw invalidArgument('options.maxOutputBytes', `must be a number from 1 on; got ${quoteValue(maxOutputBytes)}`);
}

/** Null is what servers write for a name that is missing. */
function checkTurn(path: string, turnId: unknown): void {
  if (turnId !== undefined && turnId !== null && typeof turnId !== 'string')
    throw invalidArgument(path, `must be a text; got ${quoteValue(turnId)}`);
}

/** Compares the name, because an adapter in a bundle has a class of its own. */
function isPawlError(error: unknown): error is PawlError {
  return error instanceof Error && error.name === 'PawlError';
}

function errorAnswer(message: string): ModelAnswer {
  const text = message.toWellFormed();
  return { content: [{ type: 'text', text }], text, isError: true };
}
