/** The audit trail in a long-running process: chains waiting records, and copies the trail to files if configured. */
import { join, resolve } from 'node:path';
import type { Settings } from '../config/config.ts';
import { reasonOf } from '../errors/failure.ts';
import type { Logger } from '../telemetry/log.ts';
import { withinMs } from '../util/wait.ts';
import { AuditFiles, type AuditFilesDeps } from './audit/audit-files.ts';
import { AuditChainer } from './audit/audit-trail.ts';
import { ChainSignatures } from './audit/chain-signatures.ts';
import type { Backend } from './backend.ts';

/** The folder into which an API process copies the trail. */
export function auditFolder({ audit, dataDir }: Pick<Settings, 'audit' | 'dataDir'>): string {
  return audit.folder ?? join(dataDir, 'audit');
}

/** The pause when there is nothing more to do. */
const INTERVAL_MS = 200;
/** Redis may be unavailable. */
const CLOSE_LIMIT_MS = 1_000;

export class AuditService {
  readonly #tasks: readonly Pick<AuditChainer | AuditFiles, 'step' | 'release'>[];
  readonly #onError: (error: Error) => void;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #closed = false;

  constructor(tasks: readonly Pick<AuditChainer | AuditFiles, 'step' | 'release'>[], onError: (error: Error) => void) {
    this.#tasks = tasks;
    this.#onError = onError;
    this.#schedule(INTERVAL_MS);
  }

  #schedule(ms: number): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#running = this.#runTasks().then((more) => this.#schedule(more ? 0 : INTERVAL_MS));
    }, ms);
    this.#timer.unref();
  }

  async #runTasks(): Promise<boolean> {
    let more = false;
    for (const task of this.#tasks) {
      try {
        more = (await task.step()) === 'more' || more;
      } catch (error) {
        this.#onError(error instanceof Error ? error : new Error(String(error)));
      }
    }
    return more;
  }

  /** Starts the service of a worker; with `files`, that of an API process. */
  static open(
    { redis, prefix, signatures, trail }: Pick<Backend, 'redis' | 'prefix' | 'signatures' | 'trail'>,
    settings: Settings,
    {
      files,
      log,
      failures,
    }: { readonly files: boolean; readonly log: Logger; readonly failures?: AuditFilesDeps['failures'] },
  ): AuditService {
    const { keptRecords, maxFileBytes, files: filesMode } = settings.audit;
    const chainer = new AuditChainer({ redis, prefix, link: new ChainSignatures(signatures), keptRecords });
    const onError = (error: Error) => log.debug({ error: error.message }, 'the audit trail');
    if (!files || filesMode === 'off') return new AuditService([chainer], onError);
    const onGap = (gap: { readonly from: number; readonly to: number }) =>
      log.error(
        { event: 'audit_gap', ...gap },
        'records of the audit trail are in no file: Redis kept too few of them',
      );
    const folder = auditFolder(settings);
    const onFault = (error: unknown) =>
      log.error(
        { event: 'audit_files', folder: resolve(folder), error: reasonOf(error) },
        'the audit trail cannot be written to its files: Redis alone has its newest records',
      );
    const sink = new AuditFiles({ trail, folder, maxFileBytes, onGap, onFault, failures });
    return new AuditService([chainer, sink], onError);
  }

  /** Finishes the waiting records and releases the leases, so that other processes need not wait for their end. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    let isLate = false;
    await withinMs(
      this.#release(() => isLate),
      CLOSE_LIMIT_MS,
    );
    isLate = true;
  }

  async #release(isLate: () => boolean): Promise<void> {
    await this.#running;
    while ((await this.#runTasks()) && !isLate());
    for (const task of this.#tasks) await task.release().catch(this.#onError);
  }
}
