/**
 * Standard input and output as an MCP server's connection. The SDK's own connection drops running requests when the input ends. This
 * one answers them, for a program that pipes a few messages in and waits for the results.
 */
import { parseJSONRPCMessage, STDIO_DEFAULT_MAX_BUFFER_SIZE } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import {
  INVALID_REQUEST,
  identityOf,
  type RefusedMessage,
  readClientMessage,
} from '../../producer/mcp/client-message.ts';
import { backgroundSchedule } from '../../shared/util/time.ts';

type Message = Parameters<StdioServerTransport['send']>[0];

interface StdioConnectionOptions {
  readonly input: NodeJS.ReadStream;
  readonly output: NodeJS.WriteStream;
  /** The connection stays open for this long after the end of the input, so that requests can be answered. */
  readonly answerLimitMs: number;
  readonly onEnd: () => void;
}

export class StdioConnection extends StdioServerTransport {
  readonly #options: StdioConnectionOptions;
  readonly #unanswered = new Set<unknown>();
  /** The parts of a line whose end has not come, and their length. */
  #partialLine: Buffer[] = [];
  #partialLength = 0;
  #inputEnded = false;
  #stopWaiting = () => {};

  constructor(options: StdioConnectionOptions) {
    super(options.input, options.output);
    this.#options = options;
    // Each answer that waits for a slow reader has listeners: many of them are no leak.
    options.output.setMaxListeners(0);
  }

  override async start(): Promise<void> {
    const listener = this.onmessage;
    this.onmessage = (message) => {
      this.#trackRequest(message);
      listener?.(message);
    };
    await super.start();
  }

  override async send(message: Message): Promise<void> {
    await super.send(message);
    if (!('method' in message)) this.#markAnswered(message.id);
  }

  override async close(): Promise<void> {
    this.#stopWaiting();
    await super.close();
    this.#options.onEnd();
  }

  /** The SDK's own reader drops a message that it does not accept, and the client waits for ever. */
  override _ondata = (chunk: Buffer): void => {
    let start = 0;
    for (let end = chunk.indexOf('\n'); end !== -1; end = chunk.indexOf('\n', start)) {
      this.#readLine(chunk.subarray(start, end));
      start = end + 1;
    }
    this.#partialLine.push(chunk.subarray(start));
    this.#partialLength += chunk.length - start;
    if (this.#partialLength <= STDIO_DEFAULT_MAX_BUFFER_SIZE) return;
    this.onerror?.(new Error(`A message is longer than ${STDIO_DEFAULT_MAX_BUFFER_SIZE} bytes.`));
    void this.close();
  };

  #readLine(lastPart: Buffer): void {
    const line = Buffer.concat([...this.#partialLine, lastPart]);
    this.#partialLine = [];
    this.#partialLength = 0;
    if (line.toString().trim() === '') return;
    const read = readClientMessage(line);
    if (read.kind === 'refused') this.#refuse(read);
    // An older client may send a batch.
    else if (Array.isArray(read.value) && read.value.length > 0) for (const value of read.value) this.#receive(value);
    else this.#receive(read.value);
  }

  #receive(value: unknown): void {
    let message: Message;
    try {
      message = parseJSONRPCMessage(value);
    } catch (error) {
      this.onerror?.(error as Error);
      const { id, isAnswer } = identityOf(value);
      if (!isAnswer) this.#refuse({ id, code: INVALID_REQUEST, message: 'The message is no request of JSON-RPC 2.0.' });
      return;
    }
    this.onmessage?.(message);
  }

  #refuse({ id, code, message }: Omit<RefusedMessage, 'kind'>): void {
    super.send({ jsonrpc: '2.0', id, error: { code, message } } as Message).catch(() => {});
  }

  override _onstdinclose = (): void => {
    if (this.#inputEnded) return;
    // Many programs end their last message without a line break.
    this.#readLine(Buffer.alloc(0));
    this.#inputEnded = true;
    this.#stopWaiting = backgroundSchedule(() => void this.close(), this.#options.answerLimitMs);
    this.#closeOnceAnswered();
  };

  #trackRequest(message: Message): void {
    if (!('method' in message)) return;
    // A subscription is answered when it ends.
    if ('id' in message && message.method !== 'subscriptions/listen') this.#unanswered.add(message.id);
    if (message.method === 'notifications/cancelled') this.#markAnswered(message.params?.['requestId']);
  }

  #markAnswered(id: unknown): void {
    this.#unanswered.delete(id);
    this.#closeOnceAnswered();
  }

  #closeOnceAnswered(): void {
    if (this.#inputEnded && this.#unanswered.size === 0) void this.close();
  }
}
