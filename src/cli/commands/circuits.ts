/** `pawl circuits`: the fleet's circuit breakers. */
import type { EnforcedCircuit } from '../../producer/circuits/circuit-effects.ts';
import { circuitView } from '../../producer/http/core/views.ts';
import { capitalized, didYouMean } from '../../shared/util/text/nearest.ts';
import { type CliContext, pawlCommand, printList, usageError } from '../context.ts';
import { type Column, moment } from '../print.ts';

const COLUMNS: readonly Column<ReturnType<typeof circuitView>>[] = [
  { title: 'CIRCUIT', text: ({ key }) => key },
  { title: 'TIER', text: ({ tier }) => tier },
  { title: 'STATE', text: ({ state }) => state },
  { title: 'ENFORCEMENT', text: ({ enforcement }) => enforcement },
  { title: 'FAILURES', align: 'right', text: ({ failures }) => String(failures) },
  { title: 'SINCE', text: ({ openedAtMs }) => (openedAtMs === undefined ? '' : moment(openedAtMs)) },
  { title: 'WHY', text: ({ reason = '' }) => reason },
];

export const listCircuits = pawlCommand(async (context, pawl) => {
  show(context, await pawl.circuits.list());
});

export const setCircuit = pawlCommand(
  async (context, pawl, action: 'force_open' | 'reset', key: string, options: { reason?: string }) => {
    const changed = await pawl.circuits.set(action, isCircuitKey(key) ? { key } : { tool: key }, options.reason);
    if (changed.length === 0) {
      const keys = (await pawl.circuits.list()).map((circuit) => circuit.key);
      const hint = capitalized(didYouMean(key, keys)) || `'pawl circuits ls' lists them.`;
      throw usageError(`There is no circuit ${JSON.stringify(key)} that ever opened. ${hint}`);
    }
    show(context, changed);
  },
);

/** Whether a text is the key of a circuit. Any other text names a tool. */
function isCircuitKey(text: string): boolean {
  return /^(?:tool:|dependency:|global(?:@|$))/.test(text);
}

function show(context: CliContext, circuits: readonly EnforcedCircuit[]): void {
  const none = 'no circuit has ever opened: all calls pass';
  const rows = circuits.map(circuitView);
  printList(context, { circuits: rows }, { rows, columns: COLUMNS, none });
}
