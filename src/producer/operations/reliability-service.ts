/** `pawl.reliability`: the kill switch of the reliability layer, for one tool or for all. */
import type { ReliabilityModes, ReliabilitySwitches, SwitchCache } from '../../shared/config/switches.ts';
import { checkMembers, invalidArgument } from '../../shared/schema/known-members.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { ShadowCount } from '../../shared/store/config/switches.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import type { RecordOverride } from '../calls/audit.ts';
import type { ToolCatalogue } from '../tools/tool-catalogue.ts';

/** A switch: the tool it is about (default: all), the reason, and the operator. */
export interface ReliabilityWord {
  readonly tool?: string;
  readonly reason?: string;
  readonly by?: string;
}

export interface Reliability {
  readonly enabled: boolean;
  readonly words: ReliabilitySwitches;
  readonly tools: readonly { readonly tool: string; readonly modes: ReliabilityModes }[];
  readonly shadow: readonly ShadowCount[];
}

interface ReliabilityServiceDeps {
  /** The switches that operators have set for all processes. */
  readonly records: Pick<Backend['switches'], 'read' | 'set' | 'shadows'>;
  /** The same, as this process knows it. */
  readonly switches: SwitchCache;
  readonly catalogue: Pick<ToolCatalogue, 'all' | 'qualifiedNameOf'>;
  readonly recordOverride: RecordOverride;
}

export class ReliabilityService {
  readonly #deps: ReliabilityServiceDeps;

  constructor(deps: ReliabilityServiceDeps) {
    this.#deps = deps;
  }

  /** The switches, the modes of each tool here, once for all of its versions, and what shadow mode would have done. */
  async read(): Promise<Reliability> {
    const { catalogue, records, switches } = this.#deps;
    const [{ tools }, shadow] = await Promise.all([catalogue.all(), records.shadows(), this.catchUp()]);
    const modes = new Map(tools.toReversed().map((tool) => [qualifiedName(tool), switches.modes(tool)]));
    return {
      enabled: switches.enabled,
      words: switches.switches,
      tools: [...modes].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([tool, each]) => ({ tool, modes: each })),
      shadow,
    };
  }

  /** Switches the reliability layer off, or on again, in all processes. Throws `UNKNOWN_TOOL` and `CONTRACT_INVALID`. */
  async set(enabled: boolean, change: ReliabilityWord = {}): Promise<void> {
    checkMembers('change', change, ['tool', 'reason', 'by']);
    const { tool, reason, by } = change;
    if (typeof enabled !== 'boolean')
      throw invalidArgument('enabled', `must be true or false; got ${quoteValue(enabled)}`);
    const { catalogue, records, recordOverride } = this.#deps;
    const subject = tool === undefined ? {} : { tool: await catalogue.qualifiedNameOf(tool) };
    await records.set(enabled, { ...subject, ...(reason !== undefined && { reason }) });
    await recordOverride({ what: 'reliability', action: enabled ? 'enable' : 'disable', by, ...subject, reason });
    await this.catchUp();
  }

  /** Reads the switches of all processes: broadcasts may have been missed. */
  async catchUp(): Promise<void> {
    this.#deps.switches.update(await this.#deps.records.read());
  }
}
