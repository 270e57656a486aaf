/** What operators do with the fleet's circuits (R25): look, force open, reset. */
import {
  type Circuit,
  CLOSED_CIRCUIT,
  forcedOpen,
  isOfTarget,
  reset,
  toolOfCircuit,
} from '../../shared/circuits/circuit-breaker.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallLedger, CircuitRecords } from '../../shared/store/ports.ts';
import { homeOf, type Place } from '../../shared/store/redis/keys.ts';
import type { CircuitChange } from '../../shared/telemetry/log-events.ts';
import { qualifiedName, type Tier, toolNamed } from '../../shared/tools/tool.ts';

export interface CircuitListing {
  readonly key: string;
  readonly place: Place;
  readonly circuit: Circuit;
  /** In the window, while the circuit is closed; of an open one those that opened it. */
  readonly failures: number;
}

/** Which circuits: one by its key, or all of a tool (in one tenant when named). A reset without either takes all. */
export interface CircuitSelection {
  readonly key?: string;
  readonly tool?: string;
  readonly tenantId?: string;
}

const TRIES = 10;
/** A circuit that tools share, in each tier for itself; nobody knows beforehand which tools will. */
const SHARED = /^(?:dependency:[^@]|global(?:@|$))/;

interface KnownTool {
  readonly namespace: string;
  readonly name: string;
  readonly tier: Tier;
}

interface CircuitAdminParts {
  readonly breakers: CircuitRecords;
  /** What workers offer, and what is declared. */
  tools(): Promise<readonly KnownTool[]>;
  readonly ledger: Pick<CallLedger, 'now'>;
}

export class CircuitAdmin {
  readonly #backend: CircuitAdminParts;
  readonly #places: readonly Place[];

  readonly #onChange: (change: CircuitChange) => void;

  constructor(
    backend: CircuitAdminParts,
    places: readonly Place[],
    onChange: (change: CircuitChange) => void = () => {},
  ) {
    this.#backend = backend;
    this.#places = places;
    this.#onChange = onChange;
  }

  /** Circuits that ever left CLOSED. */
  async list(): Promise<CircuitListing[]> {
    const { breakers } = this.#backend;
    const ofPlace = async (place: Place): Promise<CircuitListing[]> => {
      const circuits = await breakers.list(place);
      return Promise.all(
        [...circuits].map(async ([key, circuit]) => {
          if (circuit.state === 'OPEN') return { key, place, circuit, failures: circuit.failures };
          const window = await breakers.window(place, key);
          return { key, place, circuit, failures: window.filter((sample) => !sample.ok).length };
        }),
      );
    };
    return (await Promise.all(this.#places.map(ofPlace))).flat();
  }

  /** Returns the circuits as they are now. Throws `UNKNOWN_TOOL` when there is nothing to force open. */
  async set(action: 'force_open' | 'reset', select: CircuitSelection, reason: string): Promise<CircuitListing[]> {
    const [known, tools] = await Promise.all([this.list(), this.#backend.tools()]);
    const named = select.tool === undefined ? undefined : toolNamed(tools, select.tool);
    const selected = known.filter((listing) => isSelected(listing, select, action, named));
    const unknown = action === 'force_open' ? this.#notStored(select, tools, known) : [];
    const targets = [...selected, ...unknown];
    const nowMs = await this.#backend.ledger.now();
    return Promise.all(targets.map((target) => this.#change(target, action, reason, nowMs)));
  }

  /** The circuits that a selection names although they never left CLOSED, so that nothing is stored of them. */
  #notStored(
    select: CircuitSelection,
    tools: readonly KnownTool[],
    known: readonly CircuitListing[],
  ): readonly CircuitListing[] {
    const { key } = select;
    if (key === undefined || !SHARED.test(key)) return ownCircuit(select, tools, known);
    return this.#places
      .filter(({ tier }) => !known.some((listing) => listing.key === key && listing.place.tier === tier))
      .map((place) => ({ key, place, circuit: CLOSED_CIRCUIT, failures: 0 }));
  }

  async #change(
    target: CircuitListing,
    action: 'force_open' | 'reset',
    reason: string,
    nowMs: number,
  ): Promise<CircuitListing> {
    const { breakers } = this.#backend;
    let current = await breakers.read(target.place, target.key);
    for (let tries = 0; tries < TRIES; tries += 1) {
      const next = action === 'reset' ? reset(current) : forcedOpen(current, reason, nowMs);
      const { state } = current;
      const answer = await breakers.change(target.place, target.key, current, next, 0);
      current = answer.circuit;
      if (!answer.changed) continue;
      if (state !== next.state) {
        const why = next.state === 'FORCED_OPEN' ? { reason: next.reason } : {};
        this.#onChange({ circuit: target.key, from: state, to: next.state, ...why });
      }
      break;
    }
    return { ...target, circuit: current, failures: 0 };
  }
}

/** A tool's own one, unless it is known. Throws `UNKNOWN_TOOL`. */
function ownCircuit(
  select: CircuitSelection,
  tools: readonly KnownTool[],
  known: readonly CircuitListing[],
): readonly CircuitListing[] {
  const name = select.tool ?? toolOfCircuit(select.key ?? '') ?? '';
  const offer = toolNamed(tools, name);
  const tenant = select.tenantId === undefined ? '' : `@${select.tenantId}`;
  const key = select.key ?? `tool:${offer?.namespace}.${offer?.name}${tenant}`;
  if (known.some((listing) => listing.key === key)) return [];
  if (offer === undefined)
    throw new PawlError('UNKNOWN_TOOL', `There is no tool or circuit ${JSON.stringify(select.key ?? name)}.`);
  return [{ key, place: homeOf(offer.tier), circuit: CLOSED_CIRCUIT, failures: 0 }];
}

/** `named`: the one tool that a name means, as everywhere; of a name that nobody offers any more, each of that name. */
function isSelected(
  { key }: CircuitListing,
  select: CircuitSelection,
  action: 'force_open' | 'reset',
  named: KnownTool | undefined,
): boolean {
  if (select.key !== undefined) return key === select.key;
  if (select.tool === undefined) return action === 'reset';
  // The tool's own circuit holds for all of its targets when it is forced open.
  if (action === 'force_open' && isOfTarget(key)) return false;
  const tool = toolOfCircuit(key);
  const [, tenantId] = key.split('@');
  const ofTool =
    named === undefined
      ? tool === select.tool || tool?.endsWith(`.${select.tool}`) === true
      : tool === qualifiedName(named);
  return ofTool && (select.tenantId === undefined || select.tenantId === tenantId);
}
