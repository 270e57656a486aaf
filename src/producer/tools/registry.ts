/**
 * Declares tools while the system runs. Each change is one revision of one record, guarded by the revision that the writer saw. It is
 * audited, and broadcast to all processes.
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
import { checkMembers, invalidArgument } from '../../shared/schema/known-members.ts';
import type { DeclaredToolCopy, DeclaredToolRecords } from '../../shared/store/connectors/declared-tools.ts';
import { revisionConflict } from '../../shared/store/connectors/declared-tools.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';

interface RegistryDeps {
  readonly specs: DeclaredToolRecords;
  readonly copy: DeclaredToolCopy;
  readonly audit: RecordAudit;
  now(): Promise<number>;
  /** Whether workers publish a tool of this name from code. */
  isCode(namespace: string, name: string): Promise<boolean>;
}

export interface ChangeOptions {
  /** The expected revision; 0: there must be no record; `any`: there must be one. Default: the newest is replaced. */
  readonly ifRevision?: number | 'any';
  /** The author of the change, for the record and the audit. Default `local`. */
  readonly by?: string;
}

export interface PutOptions extends ChangeOptions {
  /** The declaration is from another system: the operator's `policy` for the tool is retained. */
  readonly imported?: boolean;
}

const CHANGE_OPTIONS = ['ifRevision', 'by'];

/** The tries of a change that conflicts with a concurrent one, unless the writer named a revision. */
const TRIES = 5;

export class Registry {
  readonly #deps: RegistryDeps;

  constructor(deps: RegistryDeps) {
    this.#deps = deps;
  }

  /** Declared tools and switches, by name, without removed ones. */
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

  /** The revisions of a tool, the newest first. */
  history(tool: string): Promise<readonly RegistryRecord[]> {
    return this.#deps.specs.history(qualifiedName(parseToolName(tool)));
  }

  /**
   * Declares a tool, or replaces its declaration; callable as soon as this resolves. Its switch changes only if `enabled` is set.
   * Throws `CONTRACT_INVALID`, `PRECONDITION_FAILED` (another revision) and `PERMISSION_DENIED` (an immutable one).
   */
  async put(
    tool: string,
    spec: DeclaredTool,
    given: PutOptions = {},
  ): Promise<CheckedDeclaredTool & { readonly created: boolean }> {
    checkMembers('options', given, [...CHANGE_OPTIONS, 'imported']);
    const { imported = false, ...options } = given;
    const { namespace, name } = parseToolName(tool);
    if (await this.#deps.isCode(namespace, name)) throw nameTakenByCode(`${namespace}.${name}`);
    let checked: CheckedDeclaredTool | undefined;
    let created = false;
    await this.#change(tool, 'declared', options, async (before, revision) => {
      refuseImmutable(before);
      created = !isDeclaredTool(before);
      checked = await declaredToolRecord(
        { ...(isDeclaredTool(before) ? retainedFields(before, imported) : {}), ...defined(spec) },
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
    checkMembers('switches', switches, ['enabled', 'mutable']);
    for (const [name, value] of Object.entries(switches))
      if (value !== undefined && typeof value !== 'boolean')
        throw invalidArgument(`switches.${name}`, `must be true or false; got ${quoteValue(value)}`);
    const given = defined(switches);
    const { namespace, name } = parseToolName(tool);
    const isCode = await this.#deps.isCode(namespace, name);
    const action = switches.enabled === undefined ? 'changed' : switches.enabled ? 'enabled' : 'disabled';
    return this.#change(tool, action, options, (before, revision) => {
      if (isDeclaredTool(before)) return { ...before, ...given, ...revision };
      if (!isCode && before?.kind !== 'code') throw notDeclared(tool);
      const current = before?.kind === 'code' ? before : { enabled: true, mutable: true };
      return { kind: 'code', enabled: current.enabled, mutable: current.mutable, ...given, ...revision };
    });
  }

  /**
   * Removes a declaration: nothing new is accepted, and what is queued is refused. Throws `UNKNOWN_TOOL`, and `CONTRACT_INVALID` for a
   * tool of the workers.
   */
  async remove(tool: string, options: ChangeOptions = {}): Promise<void> {
    await this.#change(tool, 'removed', options, (before, revision): RemovedRecord => {
      if (before === undefined || before.kind === 'removed') throw notDeclared(tool);
      // Removing the switch would enable a disabled tool.
      if (before.kind === 'code') throw workerToolError(qualifiedName(before));
      refuseImmutable(before);
      return { kind: 'removed', ...revision };
    });
  }

  /** Writes an earlier revision as the newest one. Throws `UNKNOWN_TOOL` and `NOT_FOUND`. */
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

  async #change<Changed extends RegistryRecord>(
    tool: string,
    action: RegistryChange['action'],
    options: ChangeOptions,
    make: (
      before: RegistryRecord | undefined,
      revision: Pick<Changed, 'namespace' | 'name' | 'revision' | 'updatedAtMs' | 'updatedBy'>,
    ) => Changed | Promise<Changed>,
  ): Promise<Changed> {
    checkMembers('options', options, CHANGE_OPTIONS);
    const { ifRevision, by = 'local' } = options;
    const { specs, copy, audit } = this.#deps;
    const parsedName = parseToolName(tool);
    const qualified = qualifiedName(parsedName);
    for (let tries = 1; ; tries += 1) {
      const before = await specs.read(qualified);
      // A record with an invalid signature may be replaced, but its revision still counts.
      const lastRevision = before?.revision ?? (await specs.revision(qualified));
      const currentRevision = before === undefined || before.kind === 'removed' ? 0 : lastRevision;
      const matches =
        ifRevision === 'any' ? currentRevision > 0 : ifRevision === undefined || ifRevision === currentRevision;
      if (!matches) throw revisionConflict(tool, String(ifRevision), currentRevision);
      const updatedAtMs = await this.#deps.now();
      const record = await make(before, { ...parsedName, revision: lastRevision + 1, updatedAtMs, updatedBy: by });
      const written = await specs.write(record, lastRevision);
      if (written.kind === 'changed') {
        if (typeof ifRevision !== 'number' && tries < TRIES) continue;
        throw revisionConflict(tool, String(lastRevision), written.revision);
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

/** Fields that a new declaration retains unless it sets them: it must not enable a tool that an operator has disabled. */
function retainedFields({ enabled, policy }: DeclaredToolRecord, imported: boolean): Partial<DeclaredTool> {
  return { enabled, ...(imported && policy !== undefined ? { policy } : {}) };
}

function refuseImmutable(before: RegistryRecord | undefined): void {
  if (isDeclaredTool(before) && !before.mutable)
    throw new PawlError(
      'PERMISSION_DENIED',
      `${qualifiedName(before)} is protected from changes (mutable is false): PATCH it with {"mutable":true} first.`,
    );
}

function nameTakenByCode(qualified: string): PawlError {
  return new PawlError(
    'CONTRACT_INVALID',
    `Workers offer a tool ${qualified} of their own; give this one another name or namespace.`,
    {
      issues: [{ path: 'name', message: `is taken by a tool of the workers: ${qualified}` }],
    },
  );
}

function workerToolError(qualified: string): PawlError {
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
