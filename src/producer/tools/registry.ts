/**
 * Declaring tools while the system runs. Each change is one revision of one record, made only if the record before it is the one that the
 * writer saw; it is audited, and broadcast to all processes.
 */
import type { RecordAudit, RegistryChange } from '../../shared/audit/audit-event.ts';
import {
  type CheckedDeclaredTool,
  type CodeSwitchRecord,
  type DeclaredTool,
  type DeclaredToolRecord,
  declaredToolRecord,
  isDeclaredTool,
  parseToolName,
  type RegistryRecord,
  type RemovedRecord,
} from '../../shared/connectors/declared-tool.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { DeclaredToolCopy, DeclaredToolRecords } from '../../shared/store/connectors/declared-tools.ts';
import { revisionConflict } from '../../shared/store/connectors/declared-tools.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';

export interface RegistryDeps {
  readonly specs: DeclaredToolRecords;
  readonly copy: DeclaredToolCopy;
  readonly audit: RecordAudit;
  now(): Promise<number>;
  /** Whether workers publish a tool of this name, as code. */
  isCode(namespace: string, name: string): Promise<boolean>;
}

export interface ChangeOptions {
  /** The revision that the writer saw; 0: there must be none; `any`: there must be one. Without it, the newest is replaced. */
  readonly ifRevision?: number | 'any';
  /** The author of the change, for the record and the audit. Default `local`. */
  readonly by?: string;
}

export interface PutOptions extends ChangeOptions {
  /** The declaration comes from another system: the operator's `policy` for the tool stays. */
  readonly imported?: boolean;
}

/** A change that meets a concurrent one is read and tried again this often, unless the writer named a revision. */
const TRIES = 5;

export class Registry {
  readonly #deps: RegistryDeps;

  constructor(deps: RegistryDeps) {
    this.#deps = deps;
  }

  /** Declared tools and switches, by name; what was removed is left out. */
  async list(): Promise<readonly Exclude<RegistryRecord, RemovedRecord>[]> {
    await this.#deps.copy.catchUp();
    return [...this.#deps.copy.all()]
      .filter((record) => record.kind !== 'removed')
      .sort((a, b) => (qualifiedName(a) < qualifiedName(b) ? -1 : 1));
  }

  /** The record of a tool; undefined when the registry has none. */
  async read(tool: string): Promise<Exclude<RegistryRecord, RemovedRecord> | undefined> {
    const record = await this.#deps.specs.read(qualifiedName(parseToolName(tool)));
    return record?.kind === 'removed' ? undefined : record;
  }

  /** Its revisions, the newest first. */
  history(tool: string): Promise<readonly RegistryRecord[]> {
    return this.#deps.specs.history(qualifiedName(parseToolName(tool)));
  }

  /**
   * Declares a tool, or replaces its declaration; callable as soon as the answer is here. Only a word on `enabled` moves its switch.
   * Throws `CONTRACT_INVALID`, `PRECONDITION_FAILED` (another revision) and `PERMISSION_DENIED` (an immutable one).
   */
  async put(
    tool: string,
    spec: DeclaredTool,
    { imported = false, ...options }: PutOptions = {},
  ): Promise<CheckedDeclaredTool & { readonly created: boolean }> {
    const { namespace, name } = parseToolName(tool);
    if (await this.#deps.isCode(namespace, name)) throw takenByCode(`${namespace}.${name}`);
    let checked: CheckedDeclaredTool | undefined;
    let created = false;
    await this.#change(tool, 'declared', options, async (before, revision) => {
      refuseImmutable(before);
      created = !isDeclaredTool(before);
      checked = await declaredToolRecord(
        { ...(isDeclaredTool(before) ? kept(before, imported) : {}), ...spec },
        revision,
      );
      return checked.record;
    });
    return { ...(checked as unknown as CheckedDeclaredTool), created };
  }

  /** Disables or enables a tool, and protects a declaration from changes or lifts that. Throws `UNKNOWN_TOOL`. */
  async patch(
    tool: string,
    switches: { readonly enabled?: boolean; readonly mutable?: boolean },
    options: ChangeOptions = {},
  ): Promise<DeclaredToolRecord | CodeSwitchRecord> {
    const { namespace, name } = parseToolName(tool);
    const isCode = await this.#deps.isCode(namespace, name);
    const action = switches.enabled === undefined ? 'changed' : switches.enabled ? 'enabled' : 'disabled';
    return this.#change(tool, action, options, (before, revision) => {
      if (isDeclaredTool(before)) return { ...before, ...switches, ...revision };
      if (!isCode && before?.kind !== 'code') throw notDeclared(tool);
      const known = before?.kind === 'code' ? before : { enabled: true, mutable: true };
      return { kind: 'code', enabled: known.enabled, mutable: known.mutable, ...switches, ...revision };
    });
  }

  /**
   * Removes a declaration: nothing new is accepted, and what is queued is refused. Throws `UNKNOWN_TOOL`, and `CONTRACT_INVALID` for a
   * tool of the workers.
   */
  async remove(tool: string, options: ChangeOptions = {}): Promise<void> {
    await this.#change(tool, 'removed', options, (before, revision): RemovedRecord => {
      if (before === undefined || before.kind === 'removed') throw notDeclared(tool);
      // Without its switch, a tool that was switched off could be called again.
      if (before.kind === 'code') throw ofTheWorkers(qualifiedName(before));
      refuseImmutable(before);
      return { kind: 'removed', ...revision };
    });
  }

  /** Makes an earlier revision the newest again. Throws `UNKNOWN_TOOL` and `NOT_FOUND`. */
  async rollback(tool: string, to: number, options: ChangeOptions = {}): Promise<DeclaredToolRecord> {
    const earlier = (await this.history(tool)).find(({ revision }) => revision === to);
    if (earlier === undefined) throw new PawlError('NOT_FOUND', `${tool} has no revision ${to} that is still kept.`);
    if (!isDeclaredTool(earlier))
      throw new PawlError(
        'NOT_FOUND',
        `Revision ${to} of ${tool} declares no tool: it is of the kind ${earlier.kind}.`,
      );
    return this.#change(tool, 'rolled-back', options, (before, revision) => {
      refuseImmutable(before);
      return { ...earlier, ...revision };
    });
  }

  async #change<Made extends RegistryRecord>(
    tool: string,
    action: RegistryChange['action'],
    { ifRevision, by = 'local' }: ChangeOptions,
    make: (
      before: RegistryRecord | undefined,
      revision: Pick<Made, 'namespace' | 'name' | 'revision' | 'updatedAtMs' | 'updatedBy'>,
    ) => Made | Promise<Made>,
  ): Promise<Made> {
    const { specs, copy, audit } = this.#deps;
    const named = parseToolName(tool);
    const qualified = qualifiedName(named);
    for (let tries = 1; ; tries += 1) {
      const before = await specs.read(qualified);
      // A record whose signature cannot be verified may be replaced, but not unnoticed.
      const seen = before?.revision ?? (await specs.revision(qualified));
      const present = before === undefined || before.kind === 'removed' ? 0 : seen;
      const isMet = ifRevision === 'any' ? present > 0 : ifRevision === undefined || ifRevision === present;
      if (!isMet) throw revisionConflict(tool, String(ifRevision), present);
      const updatedAtMs = await this.#deps.now();
      const record = await make(before, { ...named, revision: seen + 1, updatedAtMs, updatedBy: by });
      const written = await specs.write(record, seen);
      if (written.kind === 'changed') {
        if (typeof ifRevision !== 'number' && tries < TRIES) continue;
        throw revisionConflict(tool, String(seen), written.revision);
      }
      await audit({
        type: 'registry-changed',
        tool: qualified,
        kind: record.kind,
        action,
        revision: record.revision,
        by,
      });
      await copy.catchUp();
      return record;
    }
  }
}

/** The fields of a declaration that stay unless the next one sets them: the operator who disabled a tool has not seen that one. */
function kept({ enabled, policy }: DeclaredToolRecord, imported: boolean): Partial<DeclaredTool> {
  return { enabled, ...(imported && policy !== undefined ? { policy } : {}) };
}

function refuseImmutable(before: RegistryRecord | undefined): void {
  if (isDeclaredTool(before) && !before.mutable)
    throw new PawlError(
      'PERMISSION_DENIED',
      `${qualifiedName(before)} is protected from changes (mutable is false): PATCH it with {"mutable":true} first.`,
    );
}

function takenByCode(qualified: string): PawlError {
  return new PawlError(
    'CONTRACT_INVALID',
    `Workers offer a tool ${qualified} of their own; give this one another name or namespace.`,
    {
      issues: [{ path: 'name', message: `is taken by a tool of the workers: ${qualified}` }],
    },
  );
}

function ofTheWorkers(qualified: string): PawlError {
  const message = 'is a tool of the workers: it cannot be removed';
  return new PawlError(
    'CONTRACT_INVALID',
    `${qualified} ${message}, only switched with \`pawl tools disable\` and \`enable\`, or PATCH {"enabled":false} and true.`,
    { issues: [{ path: 'name', message }] },
  );
}

function notDeclared(tool: string): PawlError {
  return new PawlError('UNKNOWN_TOOL', `The registry declares no tool ${JSON.stringify(tool)}.`);
}
