/**
 * The handles through which a tool touches the world (A8 to A10). Tools declare which they need (`needs`); an absent one is
 * `PERMISSION_DENIED` before the tool runs. Who implements a handle is the worker's business.
 */

import type { Agents } from './sub-agent.ts';

/** A handle that a tool may ask for. Which ones a call gets depends on the session's kind, the tier and the worker. */
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

/** What a tool of the read-only tier may get, whatever it declares. */
export const READ_ONLY_CAPABILITIES: readonly Capability[] = ['workspace:read', 'memory:search', 'network'];

/** Handles of the context that a tool may name in place of all capabilities behind them. */
const HANDLES = {
  workspace: ['workspace:read', 'workspace:write'],
  memory: ['memory:search', 'memory:store'],
  fetch: ['network'],
} as const satisfies Readonly<Record<string, readonly Capability[]>>;

export type Need = Capability | keyof typeof HANDLES;
export const NEEDS: readonly Need[] = [...CAPABILITIES, ...(Object.keys(HANDLES) as (keyof typeof HANDLES)[])];

/** The capabilities behind needs: of a handle, for a tool that may change nothing, those that change nothing. */
export function capabilitiesOf(needs: readonly Need[], mayChange: boolean): readonly Capability[] {
  const behind = [...needs].flatMap((need): readonly Capability[] => {
    if (!Object.hasOwn(HANDLES, need)) return [need as Capability];
    const all: readonly Capability[] = HANDLES[need as keyof typeof HANDLES];
    return mayChange ? all : all.filter((capability) => READ_ONLY_CAPABILITIES.includes(capability));
  });
  return [...new Set(behind)];
}

/** On whose behalf a handle works: a store keeps tenants apart by it, and writes it down as provenance. */
export interface CapabilityOwner {
  readonly callId: string;
  readonly sessionKey: string;
  readonly actorId: string;
  readonly agentId?: string;
  readonly tenantId?: string;
  readonly turnId?: string;
}

// Files

export interface WorkspaceEntry {
  readonly path: string;
  readonly kind: 'file' | 'directory' | 'other';
  readonly bytes: number;
}

/**
 * Files below the session's workspace root, and nothing else (A11): a path that leaves it, through `..`, an absolute path
 * or a symbolic link, is refused with `PERMISSION_DENIED`; a device, socket or FIFO with `INVALID_PARAMS`.
 */
export interface Workspace {
  /** Absolute path of the root. */
  readonly root: string;
  /** Bytes of a regular file. Throws `NOT_FOUND` when absent and `RESULT_TOO_LARGE` above `maxBytes` (16 MiB). */
  read(path: string, options?: { readonly maxBytes?: number }): Promise<Uint8Array>;
  /** One level of a directory, sorted by path. */
  list(path: string): Promise<readonly WorkspaceEntry[]>;
  /** Replaces or creates a file in one step: readers see the old content or the new one. Makes missing folders. */
  write(
    path: string,
    content: string | Uint8Array,
    options?: { readonly expected?: string },
  ): Promise<{ readonly created: boolean; readonly bytes: number }>;
  /** Several changes, all or none. Throws `PRECONDITION_FAILED` when a file is not what its change expects. */
  commit(changes: readonly WorkspaceChange[]): Promise<readonly CommittedChange[]>;
  /** Files by name, or lines by content. Follows no symbolic link. Throws `INVALID_PARAMS` for a pattern that is none. */
  search(search: WorkspaceSearch): Promise<WorkspaceFinding>;
}

/**
 * `expected`: the SHA-256 (hex) of the bytes that must stand there, or `absent`. Compare and change are one step. `like`: the file whose
 * owner and permissions a new one gets, for one that moves. `isExecutable`: whether programs may run it, for those who may read it; without
 * it a file stays as it was, and a new one cannot be run.
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
  /** What stood there; left out for a file that is too large to be read (16 MiB). */
  readonly before?: Uint8Array;
}

export interface WorkspaceSearch {
  /** Folder to look in, or one file. Default: the root. */
  readonly path?: string;
  /** What a file's path below `path` must fit; without a slash, its name. */
  readonly glob?: string;
  /** RE2 pattern that a line must match. Without it files are only named. */
  readonly pattern?: string;
  readonly ignoreCase?: boolean;
  /** Take `pattern` as plain text. */
  readonly literal?: boolean;
  readonly contextLines?: number;
  /** Hidden files too, and what `.gitignore` leaves out. */
  readonly includeIgnored?: boolean;
  /** Of files, or of lines that match. Default 1,000. */
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
 * What a call did to files (C11). The workspace handle notes its own writes; a tool that changes files by other means, such as
 * a program, notes them itself. Several changes of one path count as one, from the first `before` to the last `after`.
 */
export interface DiffTracker {
  note(change: FileChange): void;
  /** In the order of the first change of each path; what ended as it began is left out. */
  changes(): readonly FileChange[];
  /** As a unified diff; binary and very large files, and those that differ in very many lines, are named only. */
  unified(): string;
}

// Programs

export interface ProcessRequest {
  /** Program and arguments; no shell interprets them. */
  readonly argv: readonly [string, ...string[]];
  /** Relative to the workspace root. */
  readonly cwd?: string;
  /** Added to the allow-listed environment. */
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  readonly timeoutMs?: number;
  /** Cap on each of the two outputs; the rest is dropped and `truncated` tells (default 256 KiB). */
  readonly maxOutputBytes?: number;
}

export interface ProcessResult {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  /** How many bytes were dropped from each output. */
  readonly truncated: { readonly stdoutBytes: number; readonly stderrBytes: number };
  readonly timedOut: boolean;
  readonly durationMs: number;
}

/** Child processes whose whole tree ends with the call, on a timeout or cancel, and when the worker dies. */
export interface Processes {
  run(request: ProcessRequest): Promise<ProcessResult>;
}

export interface TerminalRequest {
  /** Program and arguments; no shell interprets them. */
  readonly argv: readonly [string, ...string[]];
  /** Relative to the workspace root. */
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** A terminal (the default), or pipes: then programs see that nobody sits there, and Ctrl-C is a character like any other. */
  readonly tty?: boolean;
  /** The program's own time limit, after which its tree is killed. */
  readonly timeoutMs: number;
  /** How long to wait for its end before the report. */
  readonly waitMs: number;
}

/** What a program in a terminal did since the last report. */
export interface TerminalReport {
  /** Standard output and standard error in order; the middle of a long one is left out, with a mark in its place. */
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
 * Programs that live on after the call that started them, for their session's further calls: up to their time limit, until nobody
 * asked for them for a while, and as long as their worker lives. Which worker runs a call does not matter.
 */
export interface Terminals {
  start(request: TerminalRequest): Promise<TerminalReport>;
  /** Types `chars` and waits. Throws `NOT_FOUND` for what is not a terminal of this session, or has ended. */
  write(terminalId: string, chars: string, waitMs: number): Promise<TerminalReport>;
}

// Memory

export interface MemorySearchOptions {
  /** Default 10. */
  readonly limit?: number;
  /** Only records with all of these. */
  readonly metadata?: Readonly<Record<string, string>>;
}

export interface MemoryHit {
  readonly id: string;
  readonly text: string;
  /** Higher fits better; comparable within one answer only. */
  readonly score: number;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly createdAtMs?: number;
  /** Where the text came from: the call that stored it, and what that call named as its source. */
  readonly provenance?: {
    readonly sessionKey?: string;
    readonly agentId?: string;
    readonly actorId?: string;
    readonly callId?: string;
    readonly source?: string;
  };
  /** The text came from outside and is not to be trusted as an instruction. */
  readonly tainted?: boolean;
}

export interface MemoryStoreOptions {
  readonly metadata?: Readonly<Record<string, string>>;
  /** Forgotten after this time; without it, kept. */
  readonly ttlMs?: number;
  /** A URL, path or name that tells where the text is from. */
  readonly source?: string;
  readonly tainted?: boolean;
  /** The same ID replaces the record: a second attempt stores nothing twice. Default: from call ID and text. */
  readonly id?: string;
}

/** A record that was asked for by its ID. */
export type MemoryRecord = Omit<MemoryHit, 'score'>;

/** Long-term memory of one owner (A24). */
export interface Memory {
  search(query: string, options?: MemorySearchOptions): Promise<readonly MemoryHit[]>;
  store(text: string, options?: MemoryStoreOptions): Promise<{ readonly id: string }>;
  /** Undefined when there is none, or none any more. */
  get(id: string): Promise<MemoryRecord | undefined>;
  /** Whether there was one. */
  forget(id: string): Promise<boolean>;
}

/** What a store has to be able to do. One that leaves the rest out refuses it (`PERMISSION_DENIED`). */
export type StoredMemory = Pick<Memory, 'search' | 'store'> & Partial<Memory>;

/** The store behind `Memory`, one for a worker. Opening does nothing yet. */
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
  /** Whether something else than an option may be answered. Default: only when there are no options. */
  readonly freeText?: boolean;
  /** How long to wait, at most a week. Default 300,000. */
  readonly timeoutMs?: number;
}

export type Answer =
  | { readonly state: 'answered'; readonly value: string; readonly by?: string }
  | { readonly state: 'expired' }
  | { readonly state: 'dismissed'; readonly by?: string };

/** Where a session, or the nearest one above it, talks to people (A19). */
export interface Channel {
  readonly kind: string;
  /** Throws `PERMISSION_DENIED` when the channel's policy does not let this session send. */
  send(message: string | ChannelMessage): Promise<void>;
  /** Shows a question and waits for the answer, while the call's `signal` lasts. Absent where a channel is one way. */
  ask?(question: Question): Promise<Answer>;
}

/** The channels of a worker: the one that a session talks through, or undefined when neither it nor one above has any. */
export interface Channels {
  /** With the signal of the call, which ends its waiting for answers. */
  open(owner: CapabilityOwner, signal?: AbortSignal): Promise<Channel | undefined>;
}

/** The capability handles of a context. An absent one throws `PERMISSION_DENIED` at its first use. */
export interface ToolCapabilities {
  readonly workspace: Workspace;
  /** What this call changed in the workspace so far. */
  readonly changes: DiffTracker;
  readonly processes: Processes;
  /** Under the capability `processes`. */
  readonly terminals: Terminals;
  readonly memory: Memory;
  readonly channel: Channel;
  /** The session's sub-agents. */
  readonly agents: Agents;
  /** `fetch` that refuses private addresses and counts decompressed bytes. */
  readonly fetch: (input: string | URL, init?: RequestInit) => Promise<Response>;
}
