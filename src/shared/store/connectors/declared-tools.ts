/**
 * The registry's records in Redis: one for each tool, with a history of revisions. A counter numbers all changes, so that a process with a
 * copy reads only newer changes.
 */
import {
  type DeclaredToolRecord,
  isDeclaredTool,
  type RegistryRecord,
  toolPolicyOf,
} from '../../connectors/declared-tool.ts';
import { PawlError } from '../../errors/failure.ts';
import type { ToolPolicyRecord } from '../../policy/policy-file.ts';
import { qualifiedName, type ToolReference } from '../../tools/tool.ts';
import { isObject, parseJson } from '../../util/json/json-types.ts';
import { SharedRuns } from '../../util/shared-runs.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';
import { reSignFields } from '../signing/re-sign.ts';

/** The number of revisions of one tool that can be read, and rolled back to. */
export const MAX_REVISIONS = 50;
const READ_BATCH = 500;
const writeScript = new Script(new URL('./declared-tool-write.lua', import.meta.url));

type DeclaredToolWriteResult = { readonly kind: 'written' } | { readonly kind: 'changed'; readonly revision: number };

export class DeclaredToolRecords extends FleetRecords {
  /** `seenRevision`: the revision that the writer read, 0 for none. */
  async write(record: RegistryRecord, seenRevision: number): Promise<DeclaredToolWriteResult> {
    const tool = qualifiedName(record);
    const { specs, declaredToolChanges, declaredToolSequence } = this.keys;
    const [code, revision] = await writeScript.run(
      this.redis,
      [specs, declaredToolChanges, declaredToolSequence, this.keys.declaredToolHistory(tool)],
      [tool, String(seenRevision), this.#sign(record), MAX_REVISIONS, this.channel],
    );
    return code === 1 ? { kind: 'written' } : { kind: 'changed', revision: Number(revision) };
  }

  async read(tool: string): Promise<RegistryRecord | undefined> {
    const stored = await this.redis.hget(this.keys.specs, tool);
    return stored === null ? undefined : this.#verify(tool, stored);
  }

  /** The stored revision of a record, verified or not; 0 without one. */
  async revision(tool: string): Promise<number> {
    return Number(/^\d+/.exec((await this.redis.hget(this.keys.specs, tool)) ?? '')?.[0] ?? 0);
  }

  /** The newest first. */
  async history(tool: string): Promise<RegistryRecord[]> {
    const stored = await this.redis.lrange(this.keys.declaredToolHistory(tool), 0, -1);
    return stored.flatMap((text) => this.#verify(tool, text) ?? []);
  }

  /** The revision that a call was validated with; undefined when the history no longer has it. */
  async withDefinition(tool: string, definition: string): Promise<DeclaredToolRecord | undefined> {
    return (await this.history(tool)).filter(isDeclaredTool).find((record) => record.definition === definition);
  }

  /**
   * The changes after a number of the sequence, and the last number that they include. `restarted`: these are all records, because the
   * sequence began again.
   */
  async changesSince(sequence: number): Promise<{
    readonly sequence: number;
    readonly restarted: boolean;
    readonly records: ReadonlyMap<string, RegistryRecord | undefined>;
  }> {
    const newest = Number((await this.redis.get(this.keys.declaredToolSequence)) ?? 0);
    if (newest === sequence) return { sequence, restarted: false, records: new Map() };
    // Without a number that can be read, all records are read each time.
    const restarted = !(newest >= sequence);
    const tools = await this.redis.zrangebyscore(
      this.keys.declaredToolChanges,
      restarted ? '-inf' : `(${sequence}`,
      restarted ? '+inf' : newest,
    );
    const records = new Map<string, RegistryRecord | undefined>();
    for (let from = 0; from < tools.length; from += READ_BATCH) {
      const batch = tools.slice(from, from + READ_BATCH);
      const stored = await this.redis.hmget(this.keys.specs, ...batch);
      batch.forEach((tool, index) => {
        const text = stored[index];
        records.set(tool, typeof text === 'string' ? this.#verify(tool, text) : undefined);
      });
    }
    return { sequence: Number.isNaN(newest) ? 0 : newest, restarted, records };
  }

  /** With the newest key; earlier revisions stay as they are. */
  reSign(): Promise<void> {
    return reSignFields(this.redis, this.keys.specs, (tool, stored) => {
      const record = this.#verify(tool, stored);
      return record === undefined ? undefined : this.#sign(record);
    });
  }

  #sign(record: RegistryRecord): string {
    const text = JSON.stringify(record);
    return `${record.revision} ${this.signatures.sign('spec', qualifiedName(record), text)} ${text}`;
  }

  /** The record, when a key of this fleet signed it for this tool. */
  #verify(tool: string, stored: string): RegistryRecord | undefined {
    const [revision = '', signature = ''] = stored.split(' ', 2);
    const text = stored.slice(revision.length + signature.length + 2);
    if (!this.signatures.verify('spec', tool, text, signature)) return undefined;
    const record = parseJson(text);
    if (isObject(record) && qualifiedName(record as unknown as RegistryRecord) === tool)
      return record as unknown as RegistryRecord;
    this.signatures.refuseOnce(
      { kind: 'spec', id: [tool], reason: `the registry's record of ${tool} cannot be read` },
      stored,
    );
    return undefined;
  }
}

/** A process's copy of the registry. `catchUp` updates it. */
export class DeclaredToolCopy {
  readonly #specs: Pick<DeclaredToolRecords, 'changesSince'>;
  readonly #onChange: (tool: string, record: RegistryRecord | undefined) => void;
  readonly #records = new Map<string, RegistryRecord>();
  #sequence = 0;
  readonly #reads = new SharedRuns();

  constructor(
    specs: Pick<DeclaredToolRecords, 'changesSince'>,
    onChange: (tool: string, record: RegistryRecord | undefined) => void = () => {},
  ) {
    this.#specs = specs;
    this.#onChange = onChange;
  }

  /** Resolves when the copy has every change that was written before this call. */
  catchUp(): Promise<void> {
    return this.#reads.run(() => this.#read());
  }

  async #read(): Promise<void> {
    const { sequence, restarted, records } = await this.#specs.changesSince(this.#sequence);
    if (restarted) for (const tool of [...this.#records.keys()]) if (!records.has(tool)) this.#apply(tool, undefined);
    for (const [tool, record] of records) this.#apply(tool, record);
    this.#sequence = sequence;
  }

  #apply(tool: string, record: RegistryRecord | undefined): void {
    if (record === undefined) this.#records.delete(tool);
    else this.#records.set(tool, record);
    this.#onChange(tool, record);
  }

  get(tool: string): RegistryRecord | undefined {
    return this.#records.get(tool);
  }

  all(): IterableIterator<RegistryRecord> {
    return this.#records.values();
  }

  toolPolicyFor(tool: ToolReference): ToolPolicyRecord | undefined {
    return this.#records.size === 0 ? undefined : toolPolicyOf(this.#records.get(qualifiedName(tool)));
  }
}

export function revisionConflict(tool: string, expected: string, revision: number): PawlError {
  return new PawlError(
    'PRECONDITION_FAILED',
    `The record of ${tool} is at revision ${revision === 0 ? '0 (there is none)' : revision}; ${expected} was expected. Read it again, then change it.`,
    { details: { revision } },
  );
}
