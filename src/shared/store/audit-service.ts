/** The audit trail of a long-running process: chains waiting records, and copies the trail to files where that is configured. */
import { join, resolve } from 'node:path';
import type { Settings } from '../config/config.ts';
import type { Logger } from '../telemetry/log.ts';
import { AuditFiles, type AuditFilesDeps } from './audit/audit-files.ts';
import { AuditChainer } from './audit/audit-trail.ts';
import { ChainSignatures } from './audit/chain-signatures.ts';
import type { Backend } from './backend.ts';

/** The folder into which an API process copies the trail. */
export function auditFolder({ audit, dataDir }: Pick<Settings, 'audit' | 'dataDir'>): string {
  return audit.folder ?? join(dataDir, 'audit');
}

/** A turn is a step or two in Redis; while there is more, the next one follows at once. */
const EVERY_MS = 200;
/** Redis may be away. */
const CLOSE_LIMIT_MS = 1_000;

export class AuditService {
  readonly #keepers: readonly Pick<AuditChainer | AuditFiles, 'step' | 'leave'>[];
  readonly #onError: (error: Error) => void;
  #timer: NodeJS.Timeout | undefined;
  #turn: Promise<void> | undefined;
  #closed = false;

  constructor(keepers: readonly Pick<AuditChainer | AuditFiles, 'step' | 'leave'>[], onError: (error: Error) => void) {
    this.#keepers = keepers;
    this.#onError = onError;
    this.#wait(EVERY_MS);
  }

  #wait(ms: number): void {
    if (this.#closed) return;
    this.#timer = setTimeout(() => {
      this.#turn = this.#keep().then((more) => this.#wait(more ? 0 : EVERY_MS));
    }, ms);
    this.#timer.unref();
  }

  async #keep(): Promise<boolean> {
    let more = false;
    for (const keeper of this.#keepers) {
      try {
        more = (await keeper.step()) === 'more' || more;
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
    const { keptRecords, maxFileBytes, files: wanted } = settings.audit;
    const sealer = new AuditChainer({ redis, prefix, sealing: new ChainSignatures(signatures), keptRecords });
    const onError = (error: Error) => log.debug({ error: error.message }, 'the audit trail');
    if (!files || wanted === 'off') return new AuditService([sealer], onError);
    const onGap = (gap: { readonly from: number; readonly to: number }) =>
      log.error(
        { event: 'audit_gap', ...gap },
        'records of the audit trail are in no file: Redis kept too few of them',
      );
    const folder = auditFolder(settings);
    const onFault = (error: unknown) =>
      log.error(
        {
          event: 'audit_files',
          folder: resolve(folder),
          error: error instanceof Error ? error.message : String(error),
        },
        'the audit trail cannot be written to its files: Redis alone has its newest records',
      );
    const sink = new AuditFiles({ trail, folder, maxFileBytes, onGap, onFault, failures });
    return new AuditService([sealer, sink], onError);
  }

  /** Keeps what is left, for others would have to wait until the leases run out, and gives these back. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    let isLate = false;
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const limit = setTimeout(() => {
      isLate = true;
      resolve();
    }, CLOSE_LIMIT_MS);
    await Promise.race([this.#leave(() => isLate), late]);
    clearTimeout(limit);
  }

  async #leave(isLate: () => boolean): Promise<void> {
    await this.#turn;
    while ((await this.#keep()) && !isLate());
    for (const keeper of this.#keepers) await keeper.leave().catch(this.#onError);
  }
}
