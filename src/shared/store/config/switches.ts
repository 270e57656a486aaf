/** Stores the fleet's switches, and counts what would have happened without shadow mode. */
import type { ReliabilitySwitch, ReliabilitySwitches, ShadowKind } from '../../config/switches.ts';
import { isObject, parseJson } from '../../util/json/json-types.ts';
import { defined } from '../../util/json/omit-undefined.ts';
import { serverTimeMs } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';

const switchScript = new Script(new URL('./switch.lua', import.meta.url));
/** The field of the switch for all tools. No tool has this name. */
const ALL = '*';

export interface ShadowCount {
  readonly kind: ShadowKind;
  /** `namespace.name`. */
  readonly tool: string;
  readonly count: number;
}

export class SwitchRecords extends FleetRecords {
  async read(): Promise<{ readonly switches: ReliabilitySwitches; readonly nowMs: number }> {
    const [stored, nowMs] = await Promise.all([this.redis.hgetall(this.keys.switches), serverTimeMs(this.redis)]);
    const { [ALL]: forAllTools, ...tools } = stored;
    return {
      switches: {
        ...defined({ all: parseSwitch(forAllTools) }),
        tools: Object.fromEntries(
          Object.entries(tools).flatMap(([tool, text]) => {
            const found = parseSwitch(text);
            return found === undefined ? [] : [[tool, found] as const];
          }),
        ),
      },
      nowMs,
    };
  }

  /** Sets the switch of one tool (`namespace.name`), or that of all tools, which removes the switches of single tools. */
  async set(enabled: boolean, { tool, reason }: { readonly tool?: string; readonly reason?: string }): Promise<void> {
    await switchScript.run(
      this.redis,
      [this.keys.switches],
      [tool ?? ALL, enabled ? '1' : '0', reason ?? '', this.channel],
    );
  }

  async countShadow(kind: ShadowKind, tool: string): Promise<void> {
    await this.redis.hincrby(this.keys.shadows, `${kind} ${tool}`, 1);
  }

  async shadows(): Promise<ShadowCount[]> {
    return Object.entries(await this.redis.hgetall(this.keys.shadows)).map(([field, count]) => {
      const space = field.indexOf(' ');
      return { kind: field.slice(0, space) as ShadowKind, tool: field.slice(space + 1), count: Number(count) };
    });
  }
}

/** A text that is no switch counts as none. */
function parseSwitch(text = ''): ReliabilitySwitch | undefined {
  const stored = parseJson(text);
  return isObject(stored) && typeof stored['enabled'] === 'boolean'
    ? (stored as unknown as ReliabilitySwitch)
    : undefined;
}
