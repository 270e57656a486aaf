/** The checks of `pawl doctor` on the fleet: workers for each tier, the same signing keys everywhere, and correct clocks. */
import { sharesKeys } from '../../producer/operations/signing-check.ts';
import { partitionFor } from '../../shared/calls/call-id.ts';
import type { Settings } from '../../shared/config/config.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import { reasonOf } from '../../shared/errors/failure.ts';
import { toolLimit } from '../../shared/limits/concurrency-limit.ts';
import { tenantLimits } from '../../shared/limits/tenant.ts';
import type { ShardLayout } from '../../shared/queues/shards.ts';
import { parameterFault } from '../../shared/schema/known-members.ts';
import { keyFingerprints, UNSIGNED } from '../../shared/signing/signature.ts';
import { BlobStores } from '../../shared/store/blobs/blob-stores.ts';
import { useConfiguredStore } from '../../shared/store/blobs/configured-store.ts';
import { Catalogue, type CatalogueContent } from '../../shared/store/fleet/catalogue.ts';
import { Limits } from '../../shared/store/limits/concurrency-limits.ts';
import { readTierStates, type ShardState } from '../../shared/store/queues/shard-state.ts';
import { Shards } from '../../shared/store/queues/shards.ts';
import { exactServerTimeMs, type Redis } from '../../shared/store/redis/connection.ts';
import { PartitionKeys } from '../../shared/store/redis/keys.ts';
import { type LostSegment, Segments } from '../../shared/store/segments/segments.ts';
import { qualifiedName, TIERS, type ToolReference } from '../../shared/tools/tool.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { SyncedClock } from '../../shared/util/time.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

type Worker = CatalogueContent['workers'][number];

/** A larger difference cannot come from the network or a busy process. */
const CLOCK_TOLERANCE_MS = 1_000;
/** The newest segments of each partition that are read. */
const SEGMENTS_READ = 3;

export async function checkFleet(redis: Redis, settings: Settings): Promise<readonly Finding[]> {
  const { prefix } = settings;
  const shards = new Shards(redis, prefix);
  const layout = await shards.reload();
  const [{ workers, tools }, states, ownAheadMs] = await Promise.all([
    new Catalogue(redis, prefix).read(),
    readTierStates(redis, prefix, shards),
    readClockAhead(redis),
  ]);
  return [
    signatureFinding(settings, workers),
    ...tierKeyFindings(settings, workers),
    workersFinding(workers, states),
    ...callsFindings(states),
    ...shardsFindings(layout, settings.shards),
    clockFinding(workers, ownAheadMs),
    ...(await limitFindings(new Limits(redis, prefix), settings, tools)),
    ...targetFindings(settings, tools),
    ...(await segmentFindings(redis, settings, shards)),
  ];
}

/** Reads some segments of moved calls from here; nothing where no call was moved. */
export async function segmentFindings(redis: Redis, settings: Settings, shards: Shards): Promise<readonly Finding[]> {
  const check = 'segments';
  const blobs = new BlobStores(redis);
  try {
    useConfiguredStore(blobs, settings);
  } catch (error) {
    const message = reasonOf(error);
    return [fail(check, message, 'set PAWL_BLOB_STORE to file:FOLDER, in all processes alike')];
  }
  const segments = new Segments(redis, blobs, (callId) => new PartitionKeys(settings.prefix, partitionFor(callId)));
  let [calls, files] = [0, 0];
  const unreadable: LostSegment[] = [];
  for (const partition of shards.partitions()) {
    const keys = new PartitionKeys(settings.prefix, partition);
    const counts = await segments.counts(keys);
    if (counts.segments === 0) continue;
    calls += counts.calls;
    files += counts.segments;
    unreadable.push(...(await segments.unreadable(keys, SEGMENTS_READ)));
  }
  const [first] = unreadable;
  if (first !== undefined)
    return [
      fail(
        check,
        `${plural(unreadable.length, 'segment')} of moved calls cannot be read from here: ${first.reason}`,
        'set PAWL_BLOB_STORE as the workers have it, mount its folder, or put the file back: docs/runbook.md#a-segment-is-lost',
      ),
    ];
  if (files === 0) return [];
  return [ok(check, `${plural(calls, 'call')} left Redis for ${plural(files, 'segment')}`)];
}

export function workersFinding(
  workers: readonly Pick<Worker, 'tiers'>[],
  states: readonly Pick<ShardState, 'waiting'>[],
): Finding {
  const check = 'workers';
  const perTier = TIERS.map((tier, index) => ({
    tier,
    workers: workers.filter(({ tiers }) => tiers.includes(tier)).length,
    waiting: states[index]?.waiting ?? 0,
  }));
  const message = perTier.map((each) => `${each.tier} ${each.workers}`).join(', ');
  const unserved = perTier.filter((each) => each.workers === 0);
  if (unserved.length === 0) return ok(check, message);
  const startCommand =
    workers.length === 0
      ? `'pawl up' or 'pawl worker'`
      : `'pawl worker --tiers ${unserved.map(({ tier }) => tier).join(',')}'`;
  const fix = `start one with ${startCommand}`;
  const blocked = unserved.filter(({ waiting }) => waiting > 0);
  if (blocked.length === 0) return warn(check, `${message}: calls of a tier without a worker wait`, fix);
  const waitTexts = blocked.map(({ tier, waiting }) => `${plural(waiting, 'call')} of the tier ${tier}`).join(', ');
  return fail(check, `${waitTexts} wait, and no worker serves them (${message})`, fix);
}

/** Calls that an operator has to look at. */
export function callsFindings(states: readonly Pick<ShardState, 'inDoubt' | 'stale'>[]): readonly Finding[] {
  const sum = (name: 'inDoubt' | 'stale') => states.reduce((total, state) => total + state[name], 0);
  const [inDoubt, stale] = [sum('inDoubt'), sum('stale')];
  const problems = [
    {
      calls: inDoubt,
      message: `${plural(inDoubt, 'call')} in doubt: the effect may have happened`,
      fix: `'pawl calls ls --state unresolved' lists them; find out, then 'pawl calls resolve'`,
    },
    {
      calls: stale,
      message: `${plural(stale, 'call')} lost the worker that ran ${stale === 1 ? 'it' : 'them'}, and no other has recovered ${stale === 1 ? 'it' : 'them'} yet`,
      fix: `'pawl calls ls --state running' lists the running calls, 'pawl workers' the running workers`,
    },
  ];
  return problems.filter(({ calls }) => calls > 0).map(({ message, fix }) => warn('calls', message, fix));
}

/** The layout of the shards. A change by an operator overrides the configuration. */
export function shardsFindings(layout: ShardLayout, configured: Settings['shards']): readonly Finding[] {
  const check = 'shards';
  const message = TIERS.filter((tier) => layout[tier].highest > 1)
    .map((tier) => `${tier} ${layout[tier].current}`)
    .join(', ');
  const differing = TIERS.filter(
    (tier) => layout[tier].isSet && (configured[tier] ?? layout[tier].current) !== layout[tier].current,
  );
  if (differing.length > 0)
    return [
      warn(
        check,
        `the fleet's layout is not the configured one: ${differing.map((tier) => `${tier} has ${layout[tier].current}, not ${configured[tier]}`).join(', ')}`,
        `'pawl shards set TIER NUMBER', or correct PAWL_SHARDS`,
      ),
    ];
  return message === '' ? [] : [ok(check, message)];
}

/** The state of the configured limits. A limit of a tool that no worker has may be misspelt. */
async function limitFindings(
  limits: Limits,
  settings: Settings,
  tools: readonly ToolReference[],
): Promise<readonly Finding[]> {
  const check = 'limits';
  const limited = Object.keys(settings.tools).filter((name) => settings.tools[name]?.limits !== undefined);
  const toolNames = new Set(tools.flatMap((tool) => [tool.name, qualifiedName(tool)]));
  const unknown = limited.filter((name) => !toolNames.has(name));
  const published = new Map(tools.map((tool) => [qualifiedName(tool), tool]));
  const namedLimits = [
    ...[...published].flatMap(([title, tool]) =>
      toolLimit(tool, toolPolicy(settings, tool).limits).map((limit) => ({ title, limit })),
    ),
    ...Object.keys(settings.tenants)
      .filter((tenant) => !tenant.includes('*'))
      .flatMap((tenant) =>
        tenantLimits(settings.tenants, tenant).map((limit) => ({ title: `tenant ${tenant}`, limit })),
      ),
  ];
  const limitTexts = await Promise.all(
    namedLimits.map(async ({ title, limit }) => {
      const { running, waiting, waitingToStart } = await limits.counts(limit);
      const limitText =
        limit.concurrency === undefined ? '' : `${running} of ${limit.concurrency} run, ${waiting} wait`;
      const rate = limit.perSecond === undefined ? '' : `${limit.perSecond} starts a second`;
      const queue = waitingToStart === 0 ? '' : `${waitingToStart} wait to start`;
      return `${title}: ${[limitText, rate, queue].filter((part) => part !== '').join(', ')}`;
    }),
  );
  return [
    ...(limitTexts.length === 0 ? [] : [ok(check, limitTexts.join('; '))]),
    ...unknown.map((name) =>
      warn(
        check,
        `tools.${name}.limits: no worker offers a tool of this name`,
        `correct the name in pawl.config, or start a worker that offers ${name}`,
      ),
    ),
  ];
}

/** A target parameter of the configuration that its tool does not have: all targets share the circuit of the tool. */
function targetFindings(settings: Settings, tools: CatalogueContent['tools']): readonly Finding[] {
  return tools.flatMap((tool) => {
    const { targetParameter } = toolPolicy(settings, tool).circuit ?? {};
    const fault = targetParameter === undefined ? undefined : parameterFault(targetParameter, tool.inputSchema);
    if (fault === undefined) return [];
    const message = `circuit.targetParameter of ${qualifiedName(tool)} must name ${fault}; got ${quoteValue(targetParameter)}`;
    return [warn('circuits', message, 'correct the name in pawl.config; until then all targets share one circuit')];
  });
}

export function signatureFinding(
  { redisUrl, signingKeys }: Pick<Settings, 'redisUrl' | 'signingKeys'>,
  workers: readonly Pick<Worker, 'host' | 'pid' | 'signing'>[],
): Finding {
  const check = 'signatures';
  if (signingKeys.length === 0 && redisUrl === undefined)
    return ok(check, 'calls are signed with a key of the data folder');
  const ownKeys = keyFingerprints(signingKeys);
  // Workers of an earlier version do not publish their keys.
  const untrusting = workers.filter(({ signing }) => signing !== undefined && !sharesKeys(ownKeys, signing));
  if (untrusting.length > 0)
    return fail(
      check,
      `other signing keys than here (${keysText(ownKeys)}): ${untrusting.map((worker) => `${worker.host} pid ${worker.pid} (${keysText(worker.signing ?? [])})`).join(', ')}; each side refuses the signatures of the other as SIGNATURE_INVALID`,
      'give all processes the same PAWL_SIGNING_KEYS, and restart those that had others',
    );
  if (signingKeys.length > 0) return ok(check, `calls are signed with PAWL_SIGNING_KEYS (${keysText(ownKeys)})`);
  return warn(
    check,
    `nothing is signed: ${UNSIGNED}`,
    'set PAWL_SIGNING_KEYS=kid:key (16 characters or more) alike for all processes',
  );
}

/** Whether tools of tiers with keys of their own are known here. Nothing where no tier has such keys. */
export function tierKeyFindings(
  { workerKeys }: Pick<Settings, 'workerKeys'>,
  workers: readonly Pick<Worker, 'host' | 'pid' | 'tiers' | 'tierSigning'>[],
): readonly Finding[] {
  const check = 'tier keys';
  const ownTiers = Object.keys(workerKeys);
  if (ownTiers.length === 0 && workers.every(({ tierSigning }) => tierSigning === undefined)) return [];
  const differing = workers.flatMap(({ host, pid, tiers, tierSigning }) =>
    tiers.flatMap((tier) => {
      const [own, theirs] = [keyFingerprints(workerKeys[tier] ?? []), tierSigning?.[tier] ?? []];
      const [first] = theirs;
      const isKnown = first === undefined ? own.length === 0 : own.includes(first);
      return isKnown
        ? []
        : [`${host} pid ${pid} signs tools of ${tier} with ${keysText(theirs)} (here: ${keysText(own)})`];
    }),
  );
  if (differing.length === 0) return [ok(check, `tools of ${ownTiers.join(', ')} are signed with PAWL_WORKER_KEYS`)];
  return [
    fail(
      check,
      `tools of these workers are unknown here: ${differing.join('; ')}`,
      'give this process and the workers of each tier the same PAWL_WORKER_KEYS, and restart those that had others',
    ),
  ];
}

/** The names of keys, with their fingerprints if two keys have the same name. */
function keysText(fingerprints: readonly string[]): string {
  return fingerprints.length === 0 ? 'none' : fingerprints.join(', ');
}

export function clockFinding(
  workers: readonly Pick<Worker, 'host' | 'pid' | 'clockAheadMs'>[],
  ownAheadMs: number,
): Finding {
  const check = 'clocks';
  const skewed = [
    { name: 'this machine', aheadMs: ownAheadMs },
    ...workers.map(({ host, pid, clockAheadMs = 0 }) => ({ name: `${host} pid ${pid}`, aheadMs: clockAheadMs })),
  ].filter(({ aheadMs }) => Math.abs(aheadMs) > CLOCK_TOLERANCE_MS);
  if (skewed.length === 0) return ok(check, 'this machine and the workers agree with Redis');
  const clockTexts = skewed.map(({ name, aheadMs }) => {
    const seconds = (Math.abs(aheadMs) / 1_000).toFixed(1);
    return `${name} is ${seconds} s ${aheadMs > 0 ? 'ahead of' : 'behind'} Redis`;
  });
  return warn(
    check,
    `${clockTexts.join(', ')}: times in logs and traces are wrong by that much (calls go by Redis' clock)`,
    'fix the time service (NTP) of that machine, or of the machine of Redis',
  );
}

async function readClockAhead(redis: Redis): Promise<number> {
  const clock = new SyncedClock();
  const requestedAtMs = clock.monotonic();
  clock.learn(await exactServerTimeMs(redis), clock.monotonic() - requestedAtMs);
  return clock.ownAheadMs;
}
