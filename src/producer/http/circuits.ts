/** `/debug/tool-reliability`: circuits, ledger counts and switches, and an operator's hand on the circuits (R25). */
import { z } from 'zod';
import { PawlError } from '../../shared/failure.ts';
import { TIERS } from '../../shared/tool.ts';
import { type Pawl, PLACES } from '../client.ts';
import { type Route, route } from './routes.ts';
import { circuitView } from './views.ts';

const AVAILABLE = ['force_open', 'reset'] as const;
const name = z.string().min(1).max(512);

const actionSchema = z.strictObject({
  action: z.enum(AVAILABLE, {
    error: (issue) =>
      `must be one of ${AVAILABLE.join(', ')}; got ${JSON.stringify(issue.input)?.slice(0, 80) ?? 'nothing'}`,
  }),
  /** `name` or `namespace.name`: all circuits of the tool. */
  tool: name.optional(),
  /** With `tool`: the tool's circuit for this tenant alone. */
  context: name.optional(),
  /** A circuit's own key, as listed. */
  key: name.optional(),
  reason: z.string().min(1).max(500).optional(),
});

export function circuitRoutes(pawl: Pawl): readonly Route[] {
  return [
    route({
      method: 'get',
      path: '/debug/tool-reliability',
      permission: 'oversee',
      summary: 'Circuits, ledger counts and switches.',
      answers: { 200: 'The state of reliability' },
      handle: async () => ({ status: 200, body: await reliability(pawl) }),
    }),
    route({
      method: 'post',
      path: '/debug/tool-reliability',
      permission: 'oversee',
      summary: 'Forces a circuit open, or resets circuits to closed.',
      body: actionSchema,
      answers: { 200: 'The state of reliability, with the circuits that were changed' },
      async handle({ body: { action, tool, context, key, reason } }) {
        if (action === 'force_open' && tool === undefined && key === undefined)
          throw invalid('tool', 'is required for force_open; or give the key of a circuit');
        if (context !== undefined && tool === undefined) throw invalid('tool', 'is required with context');
        const selected =
          key ?? (tool === undefined || context === undefined ? undefined : await tenantCircuit(pawl, tool, context));
        const changed = await pawl.setCircuit(
          action,
          {
            ...(selected === undefined ? {} : { key: selected }),
            ...(selected === undefined && tool !== undefined ? { tool } : {}),
          },
          reason,
        );
        return { status: 200, body: { changed: changed.map(circuitView), ...(await reliability(pawl)) } };
      },
    }),
  ];
}

function invalid(path: string, message: string): PawlError {
  return new PawlError('CONTRACT_INVALID', `The body is not usable: ${path}: ${message}.`, {
    issues: [{ path, message }],
  });
}

async function tenantCircuit(pawl: Pawl, tool: string, tenantId: string): Promise<string> {
  const { tools } = await pawl.catalogue();
  const offer = tools.find((each) => each.name === tool || `${each.namespace}.${each.name}` === tool);
  if (offer === undefined) throw new PawlError('UNKNOWN_TOOL', `There is no tool ${JSON.stringify(tool)}.`);
  return `tool:${offer.namespace}.${offer.name}@${tenantId}`;
}

async function reliability(pawl: Pawl): Promise<object> {
  const [circuits, counts] = await Promise.all([
    pawl.circuits(),
    Promise.all(PLACES.map((place) => pawl.backend.ledger.counts(place))),
  ]);
  const { enabled, openMode, deriveKeys, derivedReplay } = pawl.settings.reliability;
  return {
    circuits: circuits.map(circuitView),
    ledger: {
      inflight: counts.reduce((sum, { inflight }) => sum + inflight, 0),
      calls: counts.reduce((sum, { calls }) => sum + calls, 0),
      tiers: Object.fromEntries(TIERS.map((tier, index) => [tier, counts[index]])),
    },
    switches: {
      enabled,
      openMode,
      deriveKeys,
      derivedReplay,
      disabledTools: Object.entries(pawl.settings.tools)
        .filter(([, policy]) => policy.enabled === false)
        .map(([tool]) => tool),
    },
  };
}
