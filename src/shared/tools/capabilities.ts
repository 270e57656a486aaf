/**
 * The handles through which a tool reaches the world. Tools declare which they need (`needs`); an absent one is `PERMISSION_DENIED`
 * before the tool runs. Workers implement the handles.
 */
import type { Agents } from './sub-agent.ts';

/** The capabilities that a tool may need. The session's kind, the tier and the worker decide which ones a call gets. */
export const CAPABILITIES = [
  'workspace:read',
  'workspace:write',
  'processes',
  'memory:search',
  'memory:store',
  'channel',
  'network',
  'agents',
] as const;
export type Capability = (typeof CAPABILITIES)[number];

/** The only capabilities of read-only tools, whatever they declare. */
export const READ_ONLY_CAPABILITIES: readonly Capability[] = ['workspace:read', 'memory:search', 'network'];

/** Handles of the context, which a tool may name in place of all capabilities behind them. */
const HANDLES = {
  workspace: ['workspace:read', 'workspace:write'],
  memory: ['memory:search', 'memory:store'],
  fetch: ['network'],
} as const satisfies Readonly<Record<string, readonly Capability[]>>;

export type Need = Capability | keyof typeof HANDLES;
export const NEEDS: readonly Need[] = [...CAPABILITIES, ...(Object.keys(HANDLES) as (keyof typeof HANDLES)[])];

/** The capabilities behind needs. For a read-only tool, a handle stands for its read-only capabilities alone. */
export function capabilitiesOf(needs: readonly Need[], mayChange: boolean): readonly Capability[] {
  const capabilities = [...needs].flatMap((need): readonly Capability[] => {
    if (!Object.hasOwn(HANDLES, need)) return [need as Capability];
    const all: readonly Capability[] = HANDLES[need as keyof typeof HANDLES];
    return mayChange ? all : all.filter((capability) => READ_ONLY_CAPABILITIES.includes(capability));
  });
  return [...new Set(capabilities)];
}

/** The call on whose behalf a handle works. A memory store separates tenants by it, and records it as provenance. */
export interface CapabilityOwner {
  readonly callId: string;
  readonly sessionKey: string;
  readonly actorId: string;
  readonly agentId?: string;
  readonly tenantId?: string;
  /** The conversation turn of the call, where the caller names it. */
  readonly turnId?: string;
}

// Files

export interface WorkspaceEntry {
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'other';
  readonly bytes: number;
}

/**
 * Files below the session's workspace root, and nothing else. A path that leaves it, through `..`, an absolute path or a symbolic link,
 * is refused with `PERMISSION_DENIED`; a device, socket or FIFO with `INVALID_PARAMS`.
 */
export interface Workspace {
  /** The absolute path of the root. */
  readonly root: string;
  /** Reads the bytes of a regular file. Throws `NOT_FOUND` when absent and `RESULT_TOO_LARGE` above `maxBytes` (16 MiB). */
  read(path: string, options?: { readonly maxBytes?: number }): Promise<Uint8Array>;
  /** Lists one level of a directory, sorted by path. */
  list(path: string): Promise<readonly WorkspaceEntry[]>;
  /** Replaces or creates a file in one step: readers see the old content or the new one. Makes missing folders. */
  write(
    path: string,
    content: string | Uint8Array,
    options?: { readonly expected?: string },
  ): Promise<{ readonly created: boolean; readonly bytes: number }>;
  /** Makes several changes, all or none. Throws `PRECONDITION_FAILED` when a file is not as its change expects. */
  commit(changes: readonly WorkspaceChange[]): Promise<readonly CommittedChange[]>;
  /** Finds files by name, or lines by content. Follows no symbolic link. Throws `INVALID_PARAMS` for an invalid pattern. */
  search(search: WorkspaceSearch): Promise<WorkspaceFinding>;
}

/**
 * `expected`: the SHA-256 (hex) of the bytes that must be there, or `absent`. Compare and change are one step. `like`: the file whose
 * owner and permissions a new file gets, for a file that moves. `isExecutable`: whether those who may read the file may run it; without
 * it a file keeps its mode, and a new one is not executable.
 */
export type WorkspaceChange =
  | {
      readonly kind: 'write';
      readonly path: string;
      readonly content: string | Uint8Array;
      readonly expected?: string;
      readonly like?: string;
      readonly isExecutable?: boolean;
    }
  | { readonly kind: 'remove'; readonly path: string; readonly expected?: string };

export interface CommittedChange {
  readonly path: string;
  readonly existed: boolean;
  /** The bytes before the change; absent for a file that is too large to be read (16 MiB). */
  readonly before?: Uint8Array;
}

export interface WorkspaceSearch {
  /** The folder to search, or one file. Default: the root. */
  readonly path?: string;
  /** The pattern for a file's path below `path`; without a slash, for its name. */
  readonly glob?: string;
  /** The RE2 pattern that a line must match. Without it, files are only named. */
  readonly pattern?: string;
  readonly ignoreCase?: boolean;
  /** True takes `pattern` as plain text. */
  readonly literal?: boolean;
  readonly contextLines?: number;
  /** True includes hidden files, and those that `.gitignore` leaves out. */
  readonly includeIgnored?: boolean;
  /** The most files, or lines that match. Default 1,000. */
  readonly limit?: number;
}

export interface WorkspaceLine {
  readonly path: string;
  /** Counted from 1. */
  readonly line: number;
  readonly text: string;
  /** False for a line of context. */
  readonly isMatch: boolean;
}

export interface WorkspaceFinding {
  readonly files: readonly { readonly path: string; readonly bytes: number; readonly modifiedAtMs: number }[];
  readonly lines: readonly WorkspaceLine[];
  readonly truncated: boolean;
}

/** One file that a call changed. An absent `before` means created, an absent `after` removed. */
export interface FileChange {
  readonly path: string;
  readonly before?: Uint8Array;
  readonly after?: Uint8Array;
}

/**
 * The changes of a call to files. The workspace handle notes its own writes; a tool that changes files by other means, such as a
 * program, notes them itself. Several changes of one path count as one, from the first `before` to the last `after`.
 */
export interface DiffTracker {
  note(change: FileChange): void;
  /** The changes in the order of each path's first one, without files that ended as they began. */
  changes(): readonly FileChange[];
  /** The changes as a unified diff, which only names binary files, very large ones, and those that differ in very many lines. */
  unified(): string;
}

// Programs

export interface ProcessRequest {
  /** The program and its arguments, which no shell interprets. */
  readonly argv: readonly [string, ...string[]];
  /** The working directory, relative to the workspace root. */
  readonly cwd?: string;
  /** Additions to the allow-listed environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  readonly timeoutMs?: number;
  /** The most bytes of each of the two outputs; `truncated` counts the dropped rest. Default 256 KiB. */
  readonly maxOutputBytes?: number;
}

export interface ProcessResult {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  /** The bytes that were dropped from each output. */
  readonly truncated: { readonly stdoutBytes: number; readonly stderrBytes: number };
  readonly timedOut: boolean;
  readonly durationMs: number;
}

/** Child processes, whose whole tree ends with the call, on a timeout or cancel, and when the worker dies. */
export interface Processes {
  run(request: ProcessRequest): Promise<ProcessResult>;
}

export interface TerminalRequest extends Pick<ProcessRequest, 'argv' | 'cwd' | 'env'> {
  /** True (the default) opens a terminal. False opens pipes: programs see no terminal, and Ctrl-C is a plain character. */
  readonly tty?: boolean;
  /** The program's own time limit, after which its tree is killed. */
  readonly timeoutMs: number;
  /** The time to wait for the program's end before the report. */
  readonly waitMs: number;
}

/** The output and state of a program in a terminal since the last report. */
export interface TerminalReport {
  /** Standard output and standard error in order. A mark replaces the middle of a long text. */
  readonly output: string;
  readonly droppedBytes: number;
  readonly state:
    | { readonly kind: 'running'; readonly terminalId: string }
    | {
        readonly kind: 'ended';
        readonly exitCode: number | null;
        readonly signal: string | null;
        readonly timedOut: boolean;
      };
}

/**
 * Programs that live on after the call that started them, for their session's further calls. They end with their time limit, after a
 * while without any call for them, or with their worker. A call reaches them from any worker.
 */
export interface Terminals {
  start(request: TerminalRequest): Promise<TerminalReport>;
  /** Types `chars` and waits. Throws `NOT_FOUND` for a terminal that is not this session's, or has ended. */
  write(terminalId: string, chars: string, waitMs: number): Promise<TerminalReport>;
}

// Memory

export interface MemorySearchOptions {
  /** The most hits. Default 10. */
  readonly limit?: number;
  /** Members that a record must have, all of them. */
  readonly metadata?: Readonly<Record<string, string>>;
}

export interface MemoryHit {
  readonly id: string;
  readonly text: string;
  /** The relevance, of which a higher one fits better. Only scores of one answer can be compared. */
  readonly score: number;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly createdAtMs?: number;
  /** The text's origin: the call that stored it, and the source that the call named. */
  readonly provenance?: {
    readonly sessionKey?: string;
    readonly agentId?: string;
    readonly actorId?: string;
    readonly callId?: string;
    readonly source?: string;
  };
  /** True for text from outside, which must not be trusted as an instruction. */
  readonly tainted?: boolean;
}

export interface MemoryStoreOptions {
  readonly metadata?: Readonly<Record<string, string>>;
  /** The time after which the record is forgotten. Default: never. */
  readonly ttlMs?: number;
  /** A URL, path or name of the text's origin. */
  readonly source?: string;
  readonly tainted?: boolean;
  /** The record's ID. The same ID replaces the record, so that a second attempt stores nothing twice. Default: from call ID and text. */
  readonly id?: string;
}

/** A record, read by its ID. */
export type MemoryRecord = Omit<MemoryHit, 'score'>;

/** The long-term memory of one owner. */
export interface Memory {
  search(query: string, options?: MemorySearchOptions): Promise<readonly MemoryHit[]>;
  store(text: string, options?: MemoryStoreOptions): Promise<{ readonly id: string }>;
  /** Reads a record; undefined when there is none. */
  get(id: string): Promise<MemoryRecord | undefined>;
  /** Forgets a record. Returns whether there was one. */
  forget(id: string): Promise<boolean>;
}

/** The least that a memory store does. Calls of the optional functions are refused (`PERMISSION_DENIED`) where they are absent. */
export type StoredMemory = Pick<Memory, 'search' | 'store'> & Partial<Memory>;

/** The store behind `Memory`, one for each worker. `open` itself reads and writes nothing. */
export interface MemoryStore {
  open(owner: CapabilityOwner): StoredMemory;
  close(): Promise<void>;
}

// People

export interface ChannelMessage {
  readonly text: string;
  readonly format?: 'text' | 'markdown';
}

export interface Question {
  readonly text: string;
  readonly options?: readonly { readonly value: string; readonly label: string; readonly description?: string }[];
  /** Whether an answer may differ from the options. Default: only when there are no options. */
  readonly freeText?: boolean;
  /** The time to wait, in milliseconds, at most a week. Default 300,000. */
  readonly timeoutMs?: number;
}

export type Answer =
  | { readonly state: 'answered'; readonly value: string; readonly by?: string }
  | { readonly state: 'expired' }
  | { readonly state: 'dismissed'; readonly by?: string };

/** The channel through which a session, or the nearest one above it, talks to people. */
export interface Channel {
  readonly kind: string;
  /** Throws `PERMISSION_DENIED` when the channel's policy does not let this session send. */
  send(message: string | ChannelMessage): Promise<void>;
  /** Shows a question and waits for the answer, until the call's `signal` is aborted. Absent for a one-way channel. */
  ask?(question: Question): Promise<Answer>;
}

/** The channels of a worker. */
export interface Channels {
  /** The channel of a session, or of the nearest one above that has any. The call's signal ends the wait for answers. */
  open(owner: CapabilityOwner, signal?: AbortSignal): Promise<Channel | undefined>;
}

/** The capability handles of a context. An absent one throws `PERMISSION_DENIED` at its first use. */
export interface ToolCapabilities {
  readonly workspace: Workspace;
  /** The changes of this call to the workspace so far. */
  readonly changes: DiffTracker;
  readonly processes: Processes;
  /** Programs that outlive the call, under the capability `processes`. */
  readonly terminals: Terminals;
  readonly memory: Memory;
  readonly channel: Channel;
  /** The session's sub-agents. */
  readonly agents: Agents;
  /** A `fetch` that refuses private addresses and counts decompressed bytes. */
  readonly fetch: (input: string | URL, init?: RequestInit) => Promise<Response>;
}
