/** `pawl circuits`: the fleet's circuit breakers. */
import type { EnforcedCircuit } from '../../producer/circuits/circuit-effects.ts';
import { circuitView } from '../../producer/http/core/views.ts';
import { nearest } from '../../shared/schema/schema-issues.ts';
import { type CliContext, print, say, usageError, withPawl } from '../context.ts';
import { type Column, moment, prettyJson, table } from '../print.ts';

const COLUMNS: readonly Column<EnforcedCircuit>[] = [
  { title: 'CIRCUIT', text: ({ key }) => key },
  { title: 'TIER', text: ({ partition }) => partition.tier },
  { title: 'STATE', text: ({ circuit }) => circuit.state },
  { title: 'ENFORCEMENT', text: ({ enforcement }) => enforcement },
  { title: 'FAILURES', align: 'right', text: ({ failures }) => String(failures) },
  {
    title: 'SINCE',
    text: ({ circuit }) =>
      'openedAtMs' in circuit && circuit.openedAtMs !== undefined ? moment(circuit.openedAtMs) : '',
  },
  { title: 'WHY', text: ({ circuit }) => ('reason' in circuit ? circuit.reason : '') },
];

export async function listCircuits(context: CliContext, options: { json?: boolean }): Promise<number> {
  return withPawl(context, async (pawl) => {
    const circuits = await pawl.circuits.list();
    show(context, circuits, options.json ?? false);
    if (circuits.length === 0 && options.json !== true) say(context, 'no circuit has ever opened: all calls pass');
  });
}

export async function setCircuit(
  context: CliContext,
  action: 'force_open' | 'reset',
  key: string,
  options: { reason?: string; json?: boolean },
): Promise<number> {
  return withPawl(context, async (pawl) => {
    const changed = await pawl.circuits.set(action, isCircuitKey(key) ? { key } : { tool: key }, options.reason);
    if (changed.length === 0) {
      const near = nearest(
        key,
        (await pawl.circuits.list()).map((circuit) => circuit.key),
      );
      const hint = near.length > 0 ? ` Did you mean ${near.join(' or ')}?` : ` 'pawl circuits ls' lists them.`;
      throw usageError(`There is no circuit ${JSON.stringify(key)} that ever opened.${hint}`);
    }
    show(context, changed, options.json ?? false);
  });
}

/** Whether a text is the key of a circuit. Any other text names a tool. */
function isCircuitKey(text: string): boolean {
  return /^(?:tool:|dependency:|global(?:@|$))/.test(text);
}

function show(context: CliContext, circuits: readonly EnforcedCircuit[], asJson: boolean): void {
  if (asJson) print(context, prettyJson({ circuits: circuits.map(circuitView) }));
  else if (circuits.length > 0) print(context, table(circuits, COLUMNS));
}
