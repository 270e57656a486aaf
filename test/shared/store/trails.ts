/** An audit trail in a world of its own: who writes, seals and reads it, and copies it to files. */
import { onTestFinished } from 'vitest';
import { ChainCheck } from '../../../src/shared/audit/audit-chain.ts';
import type { AuditEvent } from '../../../src/shared/audit/audit-event.ts';
import { Signer } from '../../../src/shared/signing/signature.ts';
import { Signatures } from '../../../src/shared/signing/signatures.ts';
import { AuditFiles, readLines, trailFiles } from '../../../src/shared/store/audit/audit-files.ts';
import { AuditChainer, AuditTrail } from '../../../src/shared/store/audit/audit-trail.ts';
import { AuditWriter } from '../../../src/shared/store/audit/audit-writer.ts';
import { ChainSignatures } from '../../../src/shared/store/audit/chain-signatures.ts';
import { awaitReady, openConnection, type Redis } from '../../../src/shared/store/redis/connection.ts';
import { AuditKeys } from '../../../src/shared/store/redis/keys.ts';
import { type Clock, systemClock } from '../../../src/shared/util/time.ts';
import { createWorld } from '../../helpers/world.ts';

export const sealing = new ChainSignatures(
  new Signatures(new Signer([{ kid: 'one', key: 'a key of this test only' }])),
);

export function override(number: number): AuditEvent {
  return { type: 'override', what: 'flush', action: `number ${number}`, by: 'ada', sessionKey: `s${number % 2}` };
}

export async function openTrail() {
  const { redisUrl, prefix } = await createWorld();
  const redis: Redis = openConnection({ url: redisUrl, name: `${prefix}:audit`, mode: 'fail-fast' });
  await awaitReady(redis, 3_000);
  onTestFinished(async () => void (await redis.quit()));
  const lost: number[] = [];
  const writer = (clock: Pick<Clock, 'now'> = systemClock) => {
    const parts = {
      redis,
      prefix,
      clock,
      reads: 'on' as const,
      secrets: [],
      onLost: (records: number) => void lost.push(records),
    };
    return new AuditWriter(parts);
  };
  const sealer = (keptRecords = 1_000) => new AuditChainer({ redis, prefix, link: sealing, keptRecords });
  const trail = new AuditTrail(redis, prefix);
  const sink = (folder: string, maxFileBytes = 1_000_000) => {
    const gaps: object[] = [];
    const faults: unknown[] = [];
    const onGap = (gap: object) => void gaps.push(gap);
    const onFault = (error: unknown) => void faults.push(error);
    const failures = { value: 0 };
    return { gaps, faults, failures, files: new AuditFiles({ trail, folder, maxFileBytes, onGap, onFault, failures }) };
  };
  return { redis, prefix, keys: new AuditKeys(prefix), writer, sealer, trail, sink, lost };
}

export async function toTheEnd(keeper: { step(): Promise<'more' | 'idle'> }): Promise<void> {
  while ((await keeper.step()) === 'more');
}

export async function faultsOf(folder: string, trail: AuditTrail) {
  const head = await trail.head();
  const files = (await trailFiles(folder)).find((each) => each.trail === head?.trail)?.files ?? [];
  const check = new ChainCheck(sealing, { seq: 0, seal: head?.trail });
  for await (const line of readLines(files)) check.addLine(line);
  return { files: files.length, ...check.end(head) };
}

/** Writes so many records, some at a time, as a busy process does. */
export async function writeRecords(writer: AuditWriter, count: number): Promise<void> {
  for (let number = 0; number < count; number += 1) {
    void writer.record(override(number));
    if (number % 100 === 99) await writer.written();
  }
  await writer.close();
}
