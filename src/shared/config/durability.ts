/**
 * The durability of the writes that a Redis server acknowledges, and the requirements of tools of the elevated tier or with effects `once`.
 */
import { type Issue, PawlError } from '../errors/failure.ts';
import { type AnyTool, qualifiedName } from '../tools/tool.ts';
import type { Settings } from './config.ts';
import { toolPolicy } from './tool-settings.ts';

/**
 * How safe the start of a `once` attempt is before its effect begins:
 *
 * everysec  Redis has it. A power failure in the next two seconds may lose it, and the call with it
 * always    Redis acknowledges nothing that is not on disk (`appendfsync always`): neither starts nor outcomes are lost
 * waitaof   Redis acknowledges sooner, and the attempt waits until its start is on disk (`WAITAOF`, Redis 7.2 or later)
 */
export type Durability = Settings['durability'];

const PERSISTENCES = ['none', 'unloadable', 'no', 'unknown', 'everysec', 'always'] as const;
export type Persistence = (typeof PERSISTENCES)[number];

/** A server's configuration, as far as the server reveals it. */
export interface ServerFacts {
  readonly version: string;
  /** The setting `maxmemory-policy`; undefined when the server hides it. */
  readonly evictionPolicy: string | undefined;
  readonly persistence: Persistence;
  /** Whether the last write to disk failed. */
  readonly writeFailed?: boolean;
}

/** The weaker of two servers that keep parts of the same records. */
export function weakerOf(one: ServerFacts, other: ServerFacts): ServerFacts {
  const weaker = PERSISTENCES.indexOf(one.persistence) < PERSISTENCES.indexOf(other.persistence) ? one : other;
  return {
    version: one.version.localeCompare(other.version, 'en', { numeric: true }) < 0 ? one.version : other.version,
    evictionPolicy: evicts(one) ? one.evictionPolicy : other.evictionPolicy,
    persistence: weaker.persistence,
    ...(one.writeFailed === true || other.writeFailed === true ? { writeFailed: true } : {}),
  };
}

/** The promise of each way of persisting, for people. */
export const PROMISES: Readonly<Record<Persistence, string>> = {
  always: 'No acknowledged call is forgotten, also not when the power fails.',
  everysec: 'A crash of Redis forgets nothing; a power failure may forget the calls of the last two seconds.',
  no: 'A power failure may forget the calls since the operating system last wrote to disk.',
  none: 'A restart of Redis forgets every call.',
  unloadable:
    'A restart of Redis forgets nearly every call: it loads the writes of scripts with the rights of its default user, which may not write.',
  unknown: 'Redis does not say how it persists; acknowledged calls may be forgotten in a restart.',
};

/** How to mend a server that forgets every call when it is started again. */
export const PERSISTENCE_FIXES: { readonly [Kind in Persistence]?: string } = {
  none: 'CONFIG SET appendonly yes',
  unloadable:
    'ACL SETUSER default off resetpass ~* &* +@all, also in the ACL file (no client can log in as a user that is off)',
};

export const WAITAOF_PROMISE =
  'Calls of tools with effects once start only when their begin is on disk: a power failure causes no second effect.';

export function evicts({ evictionPolicy }: ServerFacts): boolean {
  return evictionPolicy !== undefined && evictionPolicy !== 'noeviction';
}

/** Whether acknowledged writes reach the disk soon and are never evicted, as far as the server reveals it. */
export function isDurable(server: ServerFacts): boolean {
  const { persistence, writeFailed = false } = server;
  return !['none', 'unloadable', 'no'].includes(persistence) && !evicts(server) && !writeFailed;
}

/** The durability of a tool's calls. Only tools with effects `once` can require more than the server's own. */
export function durabilityOf(settings: Pick<Settings, 'tools' | 'durability'>, tool: AnyTool): Durability {
  return tool.effects === 'once' ? (toolPolicy(settings, tool).durability ?? settings.durability) : 'everysec';
}

/** Whether the calls of some tool require this durability. */
export function asksFor(wanted: Durability, { durability, tools }: Pick<Settings, 'tools' | 'durability'>): boolean {
  return [durability, ...Object.values(tools).map((policy) => policy.durability)].includes(wanted);
}

/** A property that some tools need and the server lacks. */
export interface ServerFault {
  /** The name of the setting in Redis. */
  readonly setting: 'maxmemory-policy' | 'appendfsync' | 'appendonly' | 'version';
  readonly message: string;
  /** The command or step that repairs it. */
  readonly fix: string;
}

/** The reasons why these tools must not run on this server; empty when they may. */
export function serverFaults(
  server: ServerFacts,
  tools: readonly AnyTool[],
  settings: Pick<Settings, 'tools' | 'durability'>,
): readonly ServerFault[] {
  const faults: ServerFault[] = [];
  const criticalTools = tools.filter(({ effects, tier }) => effects === 'once' || tier === 'elevated');
  if (evicts(server) && criticalTools.length > 0)
    faults.push({
      setting: 'maxmemory-policy',
      message: `Redis evicts records when its memory is full (maxmemory-policy is ${server.evictionPolicy}), so that a call of ${toolNames(criticalTools)} could be forgotten and run twice`,
      fix: 'CONFIG SET maxmemory-policy noeviction',
    });
  const fix = PERSISTENCE_FIXES[server.persistence];
  const toolsWith = (durability: Durability) => tools.filter((tool) => durabilityOf(settings, tool) === durability);
  const alwaysTools = toolsWith('always');
  if (alwaysTools.length > 0 && server.persistence !== 'always' && server.persistence !== 'unknown')
    faults.push({
      setting: 'appendfsync',
      message: `${toolNames(alwaysTools)} is configured with durability always, and Redis has ${persistenceText(server.persistence)}`,
      fix: [fix ?? [], 'CONFIG SET appendfsync always'].flat().join(', and '),
    });
  const waitaofTools = toolsWith('waitaof');
  if (waitaofTools.length > 0 && !hasWaitaof(server))
    faults.push({
      setting: 'version',
      message: `${toolNames(waitaofTools)} is configured with durability waitaof, and Redis ${server.version} has no WAITAOF`,
      fix: `use Redis ${WAITAOF_VERSION.join('.')} or later, or durability always with CONFIG SET appendfsync always`,
    });
  else if (waitaofTools.length > 0 && fix !== undefined)
    faults.push({
      setting: 'appendonly',
      message: `${toolNames(waitaofTools)} is configured with durability waitaof, and Redis has ${persistenceText(server.persistence)}`,
      fix,
    });
  return faults;
}

/** A `CONFIGURATION` error with every fault. */
export function unfitServer(faults: readonly ServerFault[]): PawlError {
  const issues = faults.map(({ setting, message, fix }): Issue => ({ path: setting, message: `${message}: ${fix}` }));
  return new PawlError(
    'CONFIGURATION',
    `This Redis is not fit for these tools. ${issues.map(({ message }) => message).join('; ')}.`,
    { issues },
  );
}

const WAITAOF_VERSION = [7, 2] as const;

export function hasWaitaof({ version }: Pick<ServerFacts, 'version'>): boolean {
  return isAtLeast(version, WAITAOF_VERSION);
}

export function isAtLeast(version: string, oldest: readonly number[]): boolean {
  const actual = version.split('.').map(Number);
  // A server that hides its version counts as new enough: the command itself then fails on an old one.
  if (Number.isNaN(actual[0])) return true;
  const different = oldest.findIndex((number, index) => number !== (actual[index] ?? 0));
  return different === -1 || (actual[different] ?? 0) > (oldest[different] ?? 0);
}

export function persistenceText(persistence: Persistence): string {
  if (persistence === 'none') return 'appendonly no';
  return persistence === 'unloadable' ? 'a default user that may not write' : `appendfsync ${persistence}`;
}

function toolNames(tools: readonly AnyTool[]): string {
  const names = tools.slice(0, 3).map(qualifiedName);
  return tools.length > 3 ? `${names.join(', ')} and ${tools.length - 3} more` : names.join(', ');
}
