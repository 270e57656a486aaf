/** Stores the fleet's switches, and counts what would have happened without shadow mode. */
import type { ReliabilitySwitch, ReliabilitySwitches, ShadowKind } from '../../config/switches.ts';
import { defined } from '../../util/json/omit-undefined.ts';
import { serverTimeMs } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';
import { reSignFields } from '../signing/re-sign.ts';
import { signedText, verifiedText } from '../signing/signed-text.ts';

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
        ...defined({ all: this.#verified(ALL, forAllTools) }),
        tools: Object.fromEntries(
          Object.entries(tools).flatMap(([tool, text]) => {
            const found = this.#verified(tool, text);
            return found === undefined ? [] : [[tool, found] as const];
          }),
        ),
      },
      nowMs,
    };
  }

  /** Sets the switch of one tool (`namespace.name`), or that of all tools, which removes the switches of single tools. */
  async set(enabled: boolean, { tool, reason }: { readonly tool?: string; readonly reason?: string }): Promise<void> {
    const field = tool ?? ALL;
    const atMs = await serverTimeMs(this.redis);
    const signed = this.#signed(field, { enabled, atMs, ...(reason ? { reason } : {}) });
    await switchScript.run(this.redis, [this.keys.switches], [field, signed, this.channel]);
  }

  /** Signs the switches again, which are kept for good, while the older key still verifies them. */
  reSign(): Promise<void> {
    return reSignFields(this.redis, this.keys.switches, (field, stored) => {
      const found = this.#verified(field, stored);
      return found && this.#signed(field, found);
    });
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

  #signed(field: string, value: ReliabilitySwitch): string {
    return signedText(this.signatures, 'switch', field, value);
  }

  /** A text that is no switch, or that this fleet did not sign, counts as none: a switch decides whether calls are merged. */
  #verified(field: string, stored = ''): ReliabilitySwitch | undefined {
    const found = verifiedText<ReliabilitySwitch>(this.signatures, 'switch', field, stored, ['enabled']);
    return typeof found?.enabled === 'boolean' ? found : undefined;
  }
}
