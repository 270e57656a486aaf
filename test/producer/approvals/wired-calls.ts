/** Approvals in a fleet whose records a test can change. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { onTestFinished } from 'vitest';
import { z } from 'zod';
import type { Session } from '../../../src/producer/sessions/session.ts';
import type { SettingsInput } from '../../../src/shared/config/config.ts';
import type { Effects } from '../../../src/shared/retries/effects.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../../src/shared/tools/tool.ts';
import { type Fleet, pending, startFleet } from '../../helpers/fleet.ts';

export function wire(
  change: { run?: (attempt: number) => void; effects?: Effects; version?: string; about?: string } = {},
) {
  const ran: unknown[] = [];
  const tool = defineTool({
    name: 'wire',
    version: change.version ?? '1.0.0',
    description: change.about ?? 'Sends money.',
    tier: 'elevated',
    effects: change.effects ?? 'once',
    input: z.object({ to: z.string(), amount: z.number() }),
    run: (params, { attempt }) => {
      change.run?.(attempt);
      ran.push(params);
      return { output: { sent: params.amount } };
    },
  });
  return { tool, ran };
}

export interface Asked {
  readonly id: string;
  readonly digest: string;
  readonly callId: string;
  readonly result: ReturnType<typeof pending>['result'];
}

export async function start(tools: readonly AnyTool[], settings: Partial<SettingsInput> = {}, workers = 1) {
  const dataDir = mkdtempSync(join(tmpdir(), 'pawl-approvals-'));
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }));
  const signingKeys = [{ kid: 'k1', key: 'a key that nobody else has' }];
  const fleet = await startFleet({ tools, workers, settings: { signingKeys, dataDir, ...settings } });
  const session = await fleet.pawl.openSession({ actorId: 'agent-7', channel: { kind: 'operator' } });
  const ask = async (amount: number, from: Session = session): Promise<Asked> => {
    const { callId, result } = pending(await from.submit('wire', { to: 'bob', amount }));
    const { record, digest } = await fleet.pawl.approvals.show(callId);
    return { id: record.request.id, digest, callId, result };
  };
  const approve = ({ id, digest }: Asked) =>
    fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace' });
  const deny = ({ id, digest }: Asked) => fleet.pawl.approvals.decide(id, { decision: 'deny', digest, by: 'grace' });
  return { fleet, session, ask, approve, deny };
}

export function inRedis(fleet: Fleet) {
  const redis = new Redis(fleet.world.redisUrl);
  const base = `${fleet.world.prefix}:{elevated}`;
  const queue = new Queue('elevated', { connection: { url: fleet.world.redisUrl }, prefix: base });
  queue.on('error', () => {});
  onTestFinished(async () => {
    await queue.close();
    redis.disconnect();
  });
  return {
    redis,
    queue,
    record: (callId: string) => `${base}:call:${callId}`,
    approval: (id: string) => `${base}:approval:${id}`,
  };
}
