/**
 * The transport to an MCP server that this worker runs as a program. It is started exactly as declared, in the sandbox
 * that policy demands, with an environment of its own. Its whole process tree ends when the connection ends or the
 * worker dies.
 */
import { existsSync, statSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { dirname, isAbsolute, join } from 'node:path';
import type { Readable } from 'node:stream';
import type { JSONRPCMessage, Transport } from '@modelcontextprotocol/client';
import type { Settings } from '../../../shared/config/config.ts';
import type { Environment } from '../../../shared/config/variables.ts';
import type { McpConnectionOptions } from '../../../shared/connectors/mcp-routing.ts';
import { PawlError } from '../../../shared/errors/failure.ts';
import { endOf } from '../../../shared/util/text/text-cut.ts';
import { prepareProgram } from '../../context/processes.ts';
import type { ProgramEnvironment } from '../../sandbox/environment.ts';
import { startTree, type Tree } from '../../sandbox/process-tree.ts';
import { codeNames } from '../../workspace/code-files.ts';
import { protectCode, shareCode, statsOf } from '../../workspace/protected-paths.ts';
import { connectionReset, serverUnavailable } from './failures.ts';
import {
  type AnswerReader,
  isBrokenAnswer,
  isUnaddressed,
  messagesIn,
  notMessage,
  type ParsedMessages,
  parseMessage,
} from './incoming.ts';
import { resolveValues } from './values.ts';

/** The largest message, in bytes. Tool results are capped far below it; lists of tools are not. */
export const MAX_MESSAGE_BYTES = 32 * 1_024 * 1_024;
/** A message must be complete within this time of its first byte, because a slow one delays all other answers. */
const MESSAGE_TIMEOUT_MS = 20_000;
const MAX_STDERR_BYTES = 2_048;
const CODE = /\.(?:[cm]?[jt]sx?|py|rb|php|sh|jar|wasm)$/;

interface StdioOptions {
  readonly server: string;
  readonly connection: Extract<McpConnectionOptions, { transport: 'stdio' }>;
  readonly settings: Pick<Settings, 'dataDir' | 'sandbox'>;
  readonly environment: Environment;
  readonly answers: AnswerReader;
  readonly messageTimeoutMs?: number;
}

/** A folder among the arguments is data of the program and no part of it. */
function isFile(argument: string): boolean {
  return isAbsolute(argument) && (statSync(argument, { throwIfNoEntry: false })?.isFile() ?? false);
}

/**
 * The server holds secrets that calls do not: they may not change its code, its first word and files of code among its arguments. A link,
 * such as a virtual environment's to its interpreter, is left: where Pawl loads its own code through one, no program runs.
 */
function protectServer(command: readonly string[], dataDir: string): void {
  const files = command.filter((argument, index) => isFile(argument) && (index === 0 || CODE.test(argument)));
  for (const name of codeNames(files)) if (statsOf(name)?.isSymbolicLink() !== true) protectCode(name);
  shareCode(dataDir);
}

/** Returns the installation folder of a program's file: the outermost folder above it with packages, or its own folder. */
function installation(file: string): string {
  let folderWithPackages = dirname(file);
  for (let folder = dirname(file); folder !== dirname(folder); folder = dirname(folder))
    if (existsSync(join(folder, 'node_modules'))) folderWithPackages = folder;
  return folderWithPackages;
}

export class StdioTransport implements Transport {
  onclose?: (() => void) | undefined;
  onerror?: ((error: Error) => void) | undefined;
  onmessage?: (<T extends JSONRPCMessage>(message: T) => void) | undefined;
  /** The SDK recognizes a transport of standard streams by having both fields. */
  readonly stderr = null;
  readonly pid = null;
  /** The server's violation of the protocol that ended the connection. */
  fault: Error | undefined;
  readonly #options: StdioOptions;
  readonly #abort = new AbortController();
  readonly #closing = new PawlError('CANCELLED', 'The connection was closed.');
  #tree: Tree | undefined;
  #lineChunks: Buffer[] = [];
  /** The lines of a message that the server prints over several, which the protocol forbids. */
  #openLines: string[] = [];
  #openBrackets = 0;
  #hasIndented = false;
  /** The size of what waits for its end. */
  #bytes = 0;
  #stderrText = '';
  #messageTimer: NodeJS.Timeout | undefined;
  #deliveryQueue: Promise<unknown> = Promise.resolve();

  constructor(options: StdioOptions) {
    this.#options = options;
  }

  /** The end of the server's standard error, without stack frames. */
  get stderrTail(): string {
    return this.#stderrText.replaceAll(/^\s+at .*\n?/gm, '').trim();
  }

  async start(): Promise<void> {
    const { server, connection, settings, environment } = this.#options;
    const folder = connection.folder ?? (await serverFolder(settings.dataDir, server));
    protectServer(connection.command, settings.dataDir);
    const {
      sandbox,
      launch,
      environment: baseEnvironment,
    } = await prepareProgram(
      {
        root: folder,
        isTrustedRoot: true,
        callId: `mcp.${server}`,
        env: environment,
        sandbox: settings.sandbox,
        network: connection.network,
        programs: connection.command.filter(isFile).map(installation),
      },
      { argv: connection.command, env: resolveValues(connection.environment, environment) },
    );
    this.#tree = startTree(sandbox, {
      launch,
      environment: withOwnHome(baseEnvironment, sandbox.isolation === 'bubblewrap', connection, launch.root),
      name: connection.command[0],
      streams: { stdin: 'pipe', stdout: 'pipe', stderr: 'pipe' },
      timeoutMs: undefined,
      signal: this.#abort.signal,
    });
    this.#tree.stdin?.on('error', () => undefined);
    (this.#tree.stdout as Readable).on('data', (chunk: Buffer) => this.#read(chunk));
    this.#tree.stdout?.on('error', () => undefined).on('end', () => this.#readRest());
    this.#tree.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
      this.#stderrText = endOf(this.#stderrText + chunk, MAX_STDERR_BYTES);
    });
    this.#tree.stderr?.on('error', () => undefined);
    this.#tree.ended.then(
      ({ exitCode, signal }) =>
        this.#onEnd(
          connectionReset(
            `The MCP server ${server} ended (${signal ?? `exit code ${exitCode}`})${this.#stderrSuffix()}.`,
          ),
        ),
      (error: Error) => this.#onEnd(error),
    );
  }

  #stderrSuffix(): string {
    return this.stderrTail === '' ? '' : `; it said: ${endOf(this.stderrTail, 500)}`;
  }

  #onEnd(cause: Error): void {
    clearTimeout(this.#messageTimer);
    // This comes after the messages that the server sent before it ended.
    this.#deliveryQueue = this.#deliveryQueue.then(() => {
      // Closing it from here is no fault of the server.
      if (cause !== this.#closing) this.fault ??= cause;
      this.onclose?.();
    });
  }

  /** Ends the connection because of the server's fault. */
  #failProtocol(fault: Error): void {
    this.fault ??= fault;
    this.onerror?.(fault);
    this.#abort.abort(fault);
  }

  #read(chunk: Buffer): void {
    if (this.fault !== undefined) return;
    let lineStart = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, lineStart)) {
      this.#lineChunks.push(chunk.subarray(lineStart, end));
      this.#bytes += end - lineStart;
      lineStart = end + 1;
      clearTimeout(this.#messageTimer);
      this.#messageTimer = undefined;
      this.#readLine();
      if (this.fault !== undefined) return;
    }
    if (lineStart < chunk.length) this.#lineChunks.push(chunk.subarray(lineStart));
    this.#bytes += chunk.length - lineStart;
    const { server, messageTimeoutMs = MESSAGE_TIMEOUT_MS } = this.#options;
    if (this.#bytes > MAX_MESSAGE_BYTES) {
      const message = `The MCP server ${server} sent a message of more than ${MAX_MESSAGE_BYTES} bytes.`;
      this.#failProtocol(new PawlError('RESULT_TOO_LARGE', message));
      return;
    }
    if (lineStart === chunk.length) return;
    this.#messageTimer ??= setTimeout(() => {
      const message = `The MCP server ${server} did not finish a message within ${messageTimeoutMs} ms.`;
      this.#failProtocol(new PawlError('UPSTREAM_TIMEOUT', message));
    }, messageTimeoutMs).unref();
  }

  /**
   * Reads the line whose chunks have arrived. A message over several lines is a bracket that opens, lines that are indented or are JSON, and
   * a line that closes it. Any other line ends what only looked like one, so that it hides no message.
   */
  #readLine(): void {
    const line = Buffer.concat(this.#lineChunks).toString('utf8').trimEnd();
    this.#lineChunks = [];
    if (line === '' && this.#openLines.length === 0) this.#bytes = 0;
    if (line === '') return;
    if (this.#openLines.length > 0 && !/^\s/.test(line) && !isJsonLine(line)) this.#readOpenLines();
    // Another message begins: the bracket above it opens it, and all before belong to none.
    if (/^\s*"jsonrpc"\s*:/.test(line) && this.#openLines.length > 1 && this.#openLines.at(-1) === '{') {
      this.#openLines.pop();
      this.#readOpenLines();
      this.#openLines.push('{');
      this.#staysOpen('{');
    }
    this.#openLines.push(line);
    if (!this.#staysOpen(line)) this.#readOpenLines();
  }

  /** Indented lines end where a bracket closes at the beginning of a line; where none is indented, the brackets are counted. */
  #staysOpen(line: string): boolean {
    if (this.#openLines.length === 1) {
      this.#hasIndented = false;
      this.#openBrackets = line.length;
      return /^[[{]+$/.test(line);
    }
    const isIndented = /^\s/.test(line);
    this.#hasIndented ||= isIndented;
    if (this.#hasIndented) return isIndented || !/^[}\]]/.test(line);
    const brackets = unquoted(line);
    this.#openBrackets += (brackets.match(/[[{]/g)?.length ?? 0) - (brackets.match(/[\]}]/g)?.length ?? 0);
    return this.#openBrackets > 0;
  }

  #readOpenLines(): void {
    const text = this.#openLines.join('\n').trim();
    this.#openLines = [];
    this.#bytes = 0;
    const { messages, invalid } = parseText(text);
    for (const message of messages) this.#deliver(message);
    const broken = invalid.find((each) => isBrokenAnswer(each) && !isUnaddressed(each));
    if (broken !== undefined) this.#failProtocol(notMessage(this.#options.server, broken));
    // Many servers print text of their own to standard output, some of it as JSON.
    else if (messages.length === 0) this.#stderrText = endOf(`${this.#stderrText}${text}\n`, MAX_STDERR_BYTES);
  }

  /** A server that ends need not end its last line. */
  #readRest(): void {
    if (this.fault !== undefined) return;
    this.#readLine();
    if (this.#openLines.length > 0) this.#readOpenLines();
  }

  /**
   * Delivers one message per turn of the event loop. The SDK handles notifications slightly later than responses, so
   * that a progress report would otherwise come too late for its request.
   */
  #deliver(message: JSONRPCMessage): void {
    this.#options.answers.read(message);
    this.#deliveryQueue = this.#deliveryQueue.then(() => {
      this.onmessage?.(message);
      return 'id' in message ? undefined : new Promise((resolve) => setImmediate(resolve));
    });
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const stdin = this.#tree?.stdin;
    const notRunning = () => this.fault ?? serverUnavailable('The MCP server is not running.');
    if (stdin === undefined || stdin === null || this.fault !== undefined || !stdin.writable) throw notRunning();
    this.#options.answers.recordRequest(message);
    await new Promise<void>((resolve, reject) => {
      stdin.write(`${JSON.stringify(message)}\n`, (error) => (error ? reject(notRunning()) : resolve()));
    });
  }

  /** Resolves when the server's whole process tree has ended. */
  async close(): Promise<void> {
    this.#abort.abort(this.#closing);
    await this.#tree?.ended.catch(() => undefined);
  }
}

/** Whether an unindented line may be of a message over several lines. A line that is a message of its own is not. */
function isJsonLine(line: string): boolean {
  if (/^[{[].*"jsonrpc"/.test(line)) return false;
  return (
    /^(?:[{}\]["[].*|(?:-?\d[\d.eE+-]*|true|false|null),?)$/.test(line) && !/[^\s"{}[\],:\w.+-]/.test(unquoted(line))
  );
}

function unquoted(line: string): string {
  // A string without an end reaches to the end of the line, so that the search never begins again within it.
  return line.replace(/"(?:[^"\\]|\\.)*\\?(?:"|$)/g, '');
}

/** The beginnings of messages within a text. */
const MESSAGE_BEGINS = /(?=\{\s*"jsonrpc"\s*:)/;

/** Something else may stand before a message on its line: output without a line end, or another message. */
function parseText(text: string): ParsedMessages {
  try {
    return messagesIn(parseMessage(text).value);
  } catch {
    const pieces = text.split(MESSAGE_BEGINS);
    return messagesIn(pieces.flatMap(parsePiece));
  }
}

/** Something else may follow a message, too: another part of a program prints between the message and its line end. */
function parsePiece(piece: string): readonly unknown[] {
  for (const text of [piece, piece.slice(0, endOfObject(piece))])
    try {
      return [parseMessage(text).value];
    } catch {}
  return [];
}

/** The place behind the object with which a text begins; 0 where there is none. */
function endOfObject(text: string): number {
  let depth = 0;
  if (/^\s*\{\s*"jsonrpc"/.test(text))
    for (const { 0: token, index } of text.matchAll(/"(?:[^"\\]|\\.)*\\?(?:"|$)|[{}]/gs)) {
      depth += token === '{' ? 1 : token === '}' ? -1 : 0;
      if (depth === 0) return index + 1;
    }
  return 0;
}

/**
 * A confined server may write only to its folder and to the sandbox's own `/tmp`, and many servers do not start where
 * they cannot write to `HOME`. A folder that the operator names is not the home: a server's own files do not belong
 * among the operator's.
 */
function withOwnHome(
  baseEnvironment: ProgramEnvironment,
  isConfined: boolean,
  { folder, environment }: StdioOptions['connection'],
  root: string,
): ProgramEnvironment {
  if (!isConfined || environment['HOME'] !== undefined) return baseEnvironment;
  return { ...baseEnvironment, HOME: folder === undefined ? root : '/tmp' };
}

async function serverFolder(dataDir: string, server: string): Promise<string> {
  const folder = join(dataDir, 'mcp', server);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  return folder;
}
