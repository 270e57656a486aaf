/** Producers and workers of one world in this process: everything real but the number of machines. */
import { tmpdir } from 'node:os';
import { expect, inject, onTestFinished } from 'vitest';
import type { DispatchEvent, Submission } from '../../src/producer/calls/submission.ts';
import { Pawl, type PawlOptions } from '../../src/producer/client.ts';
import type { Session } from '../../src/producer/sessions/session.ts';
import type { AuditEvent } from '../../src/shared/audit/audit-event.ts';
import type { Hook } from '../../src/shared/calls/define-hook.ts';
import type { ToolResultEnvelope } from '../../src/shared/calls/envelope.ts';
import type { Settings, SettingsInput } from '../../src/shared/config/config.ts';
import { resolveSettings } from '../../src/shared/config/resolve-settings.ts';
import { publishedTool, publishedToolId } from '../../src/shared/store/fleet/catalogue.ts';
import type { WorkerEvent } from '../../src/shared/telemetry/call-events.ts';
import { type Logger, silentLogger } from '../../src/shared/telemetry/log.ts';
import { type AnyTool, TIERS, type Tier } from '../../src/shared/tools/tool.ts';
import type { ToolMakers } from '../../src/workers/connectors/declared-tools.ts';
import { ToolWorker } from '../../src/workers/worker.ts';
import { eventually } from './signal.ts';
import { createWorld, type World } from './world.ts';

export interface Fleet {
  readonly world: World;
  readonly settings: Settings;
  readonly pawl: Pawl;
  readonly session: Session;
  /** What producers and workers told, in order. */
  readonly events: readonly (DispatchEvent | WorkerEvent)[];
  /** What would be found in the audit trail. */
  readonly audited: readonly AuditEvent[];
  openProducer(change?: Partial<SettingsInput>, options?: Pick<PawlOptions, 'schedules'>): Promise<Pawl>;
  startWorker(options?: WorkerChange): Promise<ToolWorker>;
}

export interface WorkerChange {
  readonly tools?: readonly AnyTool[];
  /** Default: those of the fleet's tools; all for a fleet without tools, or with declared ones. */
  readonly tiers?: readonly Tier[];
  readonly concurrency?: number;
  /** What runs declared tools. */
  readonly declared?: ToolMakers;
  readonly environment?: Readonly<Record<string, string>>;
  readonly settings?: Partial<SettingsInput>;
  /** Default: says nothing. */
  readonly log?: Logger;
  /** Default: the lowest throw, so that retries follow at once. */
  readonly random?: () => number;
}

export interface FleetOptions extends Omit<WorkerChange, 'settings'> {
  readonly tools: readonly AnyTool[];
  readonly settings?: Partial<SettingsInput>;
  /** Of the producers and of the workers. */
  readonly hooks?: readonly Hook[];
  /** Without workers the tools are only published, as those of a worker that is busy elsewhere. */
  readonly workers?: number;
}

export async function startFleet(options: FleetOptions): Promise<Fleet> {
  const world = await createWorld();
  onTestFinished(async () => {
    await eventually(async () => (await world.connections()).length === 0, { what: 'the end of all connections' });
  });
  const settingsWith = (change: Partial<SettingsInput> = {}) =>
    resolveSettings({
      options: {
        redisUrl: world.redisUrl,
        prefix: world.prefix,
        sandbox: inject('sandbox'),
        ...options.settings,
        ...change,
      },
    });
  const settings = settingsWith();
  const events: (DispatchEvent | WorkerEvent)[] = [];
  const onEvent = (event: DispatchEvent | WorkerEvent) => void events.push(event);
  const audited: AuditEvent[] = [];
  const audit = (event: AuditEvent) => void audited.push(event);

  const openProducer: Fleet['openProducer'] = async (change = {}, more = {}) => {
    const pawl = await Pawl.open({
      settings: settingsWith(change),
      log: silentLogger,
      defaultWorkspaceRoot: tmpdir(),
      ...(options.hooks === undefined ? {} : { hooks: options.hooks }),
      onEvent,
      audit,
      ...more,
    });
    onTestFinished(() => pawl.close());
    return pawl;
  };
  const startWorker = async (change: WorkerChange = {}) => {
    const worker = await ToolWorker.start({
      settings: settingsWith(change.settings),
      tools: change.tools ?? options.tools,
      tiers: tiersOf({ ...options, ...change }, options.tools),
      concurrency: change.concurrency ?? options.concurrency ?? 8,
      log: change.log ?? options.log ?? silentLogger,
      environment: change.environment ?? options.environment ?? {},
      ...(options.hooks === undefined ? {} : { hooks: options.hooks }),
      declared: change.declared ?? options.declared ?? {},
      random: change.random ?? options.random ?? (() => 0),
      onEvent,
      audit,
    });
    onTestFinished(() => worker.close(0));
    return worker;
  };

  const pawl = await openProducer();
  await publish(pawl, options.tools);
  for (let number = 0; number < (options.workers ?? 1); number += 1) await startWorker();
  const session = await pawl.openSession({ actorId: 'ada' });
  return { world, settings, pawl, session, events, audited, openProducer, startWorker };
}

/** A queue costs a worker two connections: it serves those that its tests may use. */
function tiersOf({ tiers, tools = [], declared }: WorkerChange, published: readonly AnyTool[]): readonly Tier[] {
  if (tiers !== undefined) return tiers;
  const used = new Set([...published, ...tools].map(({ tier }) => tier));
  return used.size === 0 || declared !== undefined ? TIERS : [...used];
}

async function publish(pawl: Pawl, tools: readonly AnyTool[]): Promise<void> {
  const { catalogue } = pawl.backend;
  const nowMs = await pawl.backend.ledger.now();
  const offers = tools.map((tool) => publishedTool(tool, nowMs));
  await catalogue.publish(offers);
  expect((await pawl.catalogue()).tools.map(publishedToolId).sort()).toEqual(
    [...new Set(offers.map(publishedToolId))].sort(),
  );
}

/** A submission that waits in the queue or runs. */
export function pending(submission: Submission): Extract<Submission, { kind: 'pending' }> {
  if (submission.kind !== 'pending') throw new Error(`the call was answered: ${JSON.stringify(submission.result)}`);
  return submission;
}

/** Submits an envelope and waits for its result. */
export async function resultOf(pawl: Pick<Pawl, 'submit'>, envelope: unknown): Promise<ToolResultEnvelope> {
  const submission = await pawl.submit(envelope);
  return submission.result;
}

export function contentOf(result: ToolResultEnvelope): unknown {
  if (result.status !== 'success') throw new Error(`the call failed: ${JSON.stringify(result)}`);
  return result.output.content;
}

/** The keys of records, large outcomes, merge slots and jobs: all that a call writes. */
export async function keysOfCalls(world: World): Promise<readonly string[]> {
  return (await world.keys()).filter((key) => /:(?:call|outcome|merge|calls|inflight|wait|active):?/.test(key));
}
