/** Composes what batches and plans need. */
import type { Settings } from '../../shared/config/config.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { CallSubmitter } from '../calls/submit-call.ts';
import { BATCH_RULES, BatchService } from './batches.ts';
import type { GroupCalls } from './group-driver.ts';
import { GroupRunner } from './group-runner.ts';

export interface ComposeGroupsDeps {
  readonly backend: Pick<Backend, 'groups' | 'ledger'>;
  readonly settings: Pick<Settings, 'ttl'>;
  /** Redis' clock. */
  now(): Promise<number>;
  onError(error: Error): void;
}

export function composeGroups(
  { backend, settings, now, onError }: ComposeGroupsDeps,
  submitter: Pick<CallSubmitter, 'identify' | 'submit'>,
  service: Pick<GroupCalls, 'read' | 'result' | 'cancel'>,
) {
  const records = backend.groups;
  const calls: GroupCalls = {
    async check(envelope) {
      const { identity, envelope: checked } = await submitter.identify(envelope);
      return { callId: identity.callId, envelope: checked };
    },
    submit: (envelope, options) => submitter.submit(envelope, options),
    read: (callId) => service.read(callId),
    result: (callId) => service.result(callId),
    cancel: (callId, by) => service.cancel(callId, by),
  };
  const keptMs = settings.ttl.doneMs;
  const rules = { batch: BATCH_RULES, plan: BATCH_RULES };
  const runner = new GroupRunner({ records, rules, calls, keptMs, now, onError });
  const glance = (callId: string) => backend.ledger.glance(callId);
  return { groups: runner, batches: new BatchService({ records, runner, calls, glance, now }) };
}
