/**
 * Standard input and output as an MCP server's connection. The SDK's own connection drops running requests when the input ends. This
 * one answers them, for a program that pipes a few messages in and waits for the results.
 */
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { backgroundSchedule } from '../../shared/util/time.ts';

type Message = Parameters<StdioServerTransport['send']>[0];

export interface StdioConnectionOptions {
  readonly input: NodeJS.ReadStream;
  readonly output: NodeJS.WriteStream;
  /** The connection stays open for this long after the end of the input, so that requests can be answered. */
  readonly answerLimitMs: number;
  readonly onEnd: () => void;
}

export class StdioConnection extends StdioServerTransport {
  readonly #options: StdioConnectionOptions;
  readonly #unanswered = new Set<unknown>();
  #inputEnded = false;
  #stopWaiting = () => {};

  constructor(options: StdioConnectionOptions) {
    super(options.input, options.output);
    this.#options = options;
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

  override _onstdinclose = (): void => {
    if (this.#inputEnded) return;
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
