/**
 * What a Redis promises about what it has acknowledged, and what tools with effects `once` or of the elevated tier need of it
 * (DESIGN, decision 12). Redis is configured, not hoped for.
 */

import { type Issue, PawlError } from '../errors/failure.ts';
import { type AnyTool, qualifiedName } from '../tools/tool.ts';
import { type Settings, toolPolicy } from './config.ts';

/**
 * How sure the begin of a `once` attempt is before its effect starts:
 *
 * everysec  Redis has it. A power failure in the next two seconds may forget it, and the call with it
 * always    Redis acknowledges nothing that is not on disk (`appendfsync always`): neither begins nor ends are forgotten
 * waitaof   Redis acknowledges sooner, and the attempt waits until its begin is on disk (`WAITAOF`, Redis 7.2 or later)
 */
export type Durability = Settings['durability'];

const PERSISTENCES = ['none', 'no', 'unknown', 'everysec', 'always'] as const;
export type Persistence = (typeof PERSISTENCES)[number];

/** A server's configuration, as far as it tells. */
export interface ServerFacts {
  readonly version: string;
  /** `maxmemory-policy`; undefined when the server hides it. */
  readonly evictionPolicy: string | undefined;
  readonly persistence: Persistence;
  /** The last write to disk did not go well. */
  readonly writeFailed?: boolean;
}

/** Of several servers that keep parts of the same records: what holds for all. */
export function weakerOf(one: ServerFacts, other: ServerFacts): ServerFacts {
  const weaker = PERSISTENCES.indexOf(one.persistence) < PERSISTENCES.indexOf(other.persistence) ? one : other;
  return {
    version: one.version.localeCompare(other.version, 'en', { numeric: true }) < 0 ? one.version : other.version,
    evictionPolicy: evicts(one) ? one.evictionPolicy : other.evictionPolicy,
    persistence: weaker.persistence,
    ...(one.writeFailed === true || other.writeFailed === true ? { writeFailed: true } : {}),
  };
}

/** What each way of persisting promises, in words. */
export const PROMISES: Readonly<Record<Persistence, string>> = {
  always: 'No acknowledged call is forgotten, also not when the power fails.',
  everysec: 'A crash of Redis forgets nothing; a power failure may forget the calls of the last two seconds.',
  no: 'A power failure may forget the calls since the operating system last wrote to disk.',
  none: 'A restart of Redis forgets every call.',
  unknown: 'Redis does not say how it persists; acknowledged calls may be forgotten in a restart.',
};

export const WAITAOF_PROMISE =
  'Calls of tools with effects once start only when their begin is on disk: a power failure causes no second effect.';

export function evicts({ evictionPolicy }: ServerFacts): boolean {
  return evictionPolicy !== undefined && evictionPolicy !== 'noeviction';
}

/** Nothing that the server tells speaks against it: what was acknowledged is on disk soon, and memory's end forgets nothing. */
export function durable(server: ServerFacts): boolean {
  const { persistence, writeFailed = false } = server;
  return persistence !== 'none' && persistence !== 'no' && !evicts(server) && !writeFailed;
}

/** The durability that a tool's calls are run with. Only those of tools with effects `once` may ask for more than the server's own. */
export function durabilityOf(settings: Pick<Settings, 'tools' | 'durability'>, tool: AnyTool): Durability {
  return tool.effects === 'once' ? (toolPolicy(settings, tool).durability ?? settings.durability) : 'everysec';
}

/** Something that a server is not, and some tools need. */
export interface ServerFault {
  /** Redis' name of the setting. */
  readonly setting: 'maxmemory-policy' | 'appendfsync' | 'appendonly' | 'version';
  readonly message: string;
  /** The command or step that mends it. */
  readonly fix: string;
}

/** Why these tools must not run on this server. Empty when they may. */
export function serverFaults(
  server: ServerFacts,
  tools: readonly AnyTool[],
  settings: Pick<Settings, 'tools' | 'durability'>,
): readonly ServerFault[] {
  const faults: ServerFault[] = [];
  const careful = tools.filter(({ effects, tier }) => effects === 'once' || tier === 'elevated');
  if (evicts(server) && careful.length > 0)
    faults.push({
      setting: 'maxmemory-policy',
      message: `Redis evicts records when its memory is full (maxmemory-policy is ${server.evictionPolicy}), so that a call of ${named(careful)} could be forgotten and run twice`,
      fix: 'CONFIG SET maxmemory-policy noeviction',
    });
  const asking = (durability: Durability) => tools.filter((tool) => durabilityOf(settings, tool) === durability);
  const always = asking('always');
  if (always.length > 0 && server.persistence !== 'always' && server.persistence !== 'unknown')
    faults.push({
      setting: 'appendfsync',
      message: `${named(always)} is configured with durability always, and Redis has ${described(server.persistence)}`,
      fix:
        server.persistence === 'none'
          ? 'CONFIG SET appendonly yes, and CONFIG SET appendfsync always'
          : 'CONFIG SET appendfsync always',
    });
  const waiting = asking('waitaof');
  if (waiting.length > 0 && !isAtLeast(server.version, WAITAOF_VERSION))
    faults.push({
      setting: 'version',
      message: `${named(waiting)} is configured with durability waitaof, and Redis ${server.version} has no WAITAOF`,
      fix: `use Redis ${WAITAOF_VERSION.join('.')} or later, or durability always with CONFIG SET appendfsync always`,
    });
  else if (waiting.length > 0 && server.persistence === 'none')
    faults.push({
      setting: 'appendonly',
      message: `${named(waiting)} is configured with durability waitaof, and Redis has ${described(server.persistence)}`,
      fix: 'CONFIG SET appendonly yes',
    });
  return faults;
}

/** `CONFIGURATION` with every fault. */
export function unfitServer(faults: readonly ServerFault[]): PawlError {
  const issues = faults.map(({ setting, message, fix }): Issue => ({ path: setting, message: `${message}: ${fix}` }));
  return new PawlError(
    'CONFIGURATION',
    `This Redis is not fit for these tools. ${issues.map(({ message }) => message).join('; ')}.`,
    { issues },
  );
}

const WAITAOF_VERSION = [7, 2] as const;

export function isAtLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const [givenMajor = Number.NaN, givenMinor = 0] = version.split('.').map(Number);
  // A server that hides its version is asked, and answers for itself.
  return Number.isNaN(givenMajor) || givenMajor > major || (givenMajor === major && givenMinor >= minor);
}

function described(persistence: Persistence): string {
  return persistence === 'none' ? 'appendonly no' : `appendfsync ${persistence}`;
}

function named(tools: readonly AnyTool[]): string {
  const names = tools.slice(0, 3).map(qualifiedName);
  return tools.length > 3 ? `${names.join(', ')} and ${tools.length - 3} more` : names.join(', ');
}
