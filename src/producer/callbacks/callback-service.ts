/** `pawl.callbacks`: lists the callbacks of calls that have ended, and sends them again. */

import type { CallbackAddress } from '../../shared/callbacks/callback.ts';
import { CALLBACK_STATES, type CallbackState } from '../../shared/callbacks/callback-state.ts';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { checkLimit, checkMembers, invalidArgument } from '../../shared/schema/known-members.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { CallbackRecord } from '../../shared/store/callbacks/callbacks.ts';
import { callbackSecrets } from '../../shared/store/callbacks/secrets.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import type { RecordOverride } from '../calls/audit.ts';

export interface CallbackView
  extends Pick<CallbackRecord, 'callId' | 'state' | 'attempts' | 'settledAtMs' | 'lastAtMs'>,
    Pick<CallbackAddress, 'url' | 'tool' | 'session' | 'tenantId'> {
  /** The `webhook-id`, the same each time that it is sent. */
  readonly id: string;
  readonly nextAtMs?: number;
  /** The HTTP status of the receiver. */
  readonly lastStatus?: number;
  readonly lastError?: string;
}

interface CallbackFilter {
  readonly state?: CallbackState | undefined;
  readonly tenantId?: string | undefined;
  /** Default 50. */
  readonly limit?: number;
}

const DEFAULT_LIMIT = 50;
/** The most callbacks of a partition that one list scans. */
const MAX_SCANNED = 10_000;

export class CallbackService {
  readonly #backend: Pick<Backend, 'callbacks' | 'shards' | 'signatures'>;
  readonly #settings: Settings;
  readonly #recordOverride: RecordOverride;

  constructor(backend: Backend, settings: Settings, recordOverride: RecordOverride) {
    this.#backend = backend;
    this.#settings = settings;
    this.#recordOverride = recordOverride;
  }

  /** Callbacks of calls that have ended, the newest first; `truncated` when older ones were not scanned. */
  async list(filter: CallbackFilter = {}): Promise<{
    readonly callbacks: readonly CallbackView[];
    readonly truncated?: true;
  }> {
    checkMembers('filter', filter, ['state', 'tenantId', 'limit']);
    const { state, tenantId, limit = DEFAULT_LIMIT } = filter;
    checkLimit(limit);
    if (state !== undefined && !CALLBACK_STATES.includes(state))
      throw invalidArgument('state', `must be one of ${CALLBACK_STATES.join(', ')}; got ${quoteValue(state)}`);
    const { callbacks, shards } = this.#backend;
    const pages = await Promise.all(
      shards.partitions().map((partition) => firstPage(callbacks.list(partition, state), { tenantId, limit })),
    );
    const views = pages.flatMap((part) => part.views).sort((one, other) => other.settledAtMs - one.settledAtMs);
    const isTruncated = views.length > limit || pages.some((part) => part.isTruncated);
    return { callbacks: views.slice(0, limit), ...(isTruncated ? { truncated: true } : {}) };
  }

  /** Sends a callback again, at once and for another day, under the same ID. Throws `NOT_FOUND`. */
  async replay(id: string, options: { readonly by?: string; readonly tenantId?: string | undefined } = {}) {
    checkMembers('options', options, ['by', 'tenantId']);
    const { by, tenantId } = options;
    const { callbacks } = this.#backend;
    const { callId, target } = await callbacks.read(id);
    if (target === undefined || (tenantId !== undefined && target.tenantId !== tenantId))
      throw new PawlError('NOT_FOUND', `There is no callback ${JSON.stringify(id)}, or its record has expired.`);
    await callbacks.replay(id);
    const { session: sessionKey, tool } = target;
    const subject = { callId, sessionKey, tool, tenantId: target.tenantId };
    await this.#recordOverride({ what: 'callback', action: 'replay', by, ...subject });
    return viewOf(await callbacks.read(id));
  }

  /** The secrets with which a receiver verifies callbacks, the newest first. */
  secrets(tenantId?: string): Promise<readonly string[]> {
    const { callbacks, signatures } = this.#backend;
    return callbackSecrets({ settings: this.#settings, signatures, callbacks }, tenantId);
  }
}

async function firstPage(
  records: AsyncGenerator<CallbackRecord>,
  { tenantId, limit }: { readonly tenantId: string | undefined; readonly limit: number },
): Promise<{ readonly views: readonly CallbackView[]; readonly isTruncated: boolean }> {
  const views: CallbackView[] = [];
  let scanned = 0;
  for await (const record of records) {
    scanned += 1;
    if (record.target === undefined || (tenantId !== undefined && record.target.tenantId !== tenantId)) continue;
    if (views.length === limit || scanned > MAX_SCANNED) return { views, isTruncated: true };
    views.push(viewOf(record));
  }
  return { views, isTruncated: false };
}

function viewOf({ target, last, dueAtMs, lastAtMs, ...record }: CallbackRecord): CallbackView {
  const { url = '', tool = '', session = '', tenantId } = target ?? {};
  const { id, callId, state, attempts, settledAtMs } = record;
  const sent = { nextAtMs: dueAtMs, lastAtMs, lastStatus: last?.status, lastError: last?.error };
  return defined({ id, callId, url, tool, session, tenantId, state, attempts, settledAtMs, ...sent });
}
