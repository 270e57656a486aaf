/** `/debug/tool-reliability`: circuits, ledger counts and switches, and an operator's hand on them (R25, R33). */
import { z } from 'zod';
import { PawlError } from '../../../shared/errors/failure.ts';
import { TIERS, toolNamed } from '../../../shared/tools/tool.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { startOf } from '../../../shared/util/text/text-cut.ts';
import type { Pawl } from '../../client.ts';
import { tierCounts } from '../../operations/tier-counts.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { circuitView } from '../core/views.ts';
import { nameOf } from './approvals.ts';

const AVAILABLE = ['force_open', 'reset', 'flush', 'disable', 'enable'] as const;
const name = z.string().min(1).max(512);

const actionSchema = z.strictObject({
  action: z.enum(AVAILABLE, {
    error: (issue) =>
      `must be one of ${AVAILABLE.join(', ')}; got ${startOf(JSON.stringify(issue.input) ?? 'nothing', 80)}`,
  }),
  /** `name` or `namespace.name`: all circuits of the tool. */
  tool: name.optional(),
  /** With `tool`: the tool's circuit for this tenant alone. */
  context: name.optional(),
  /** A circuit's own key, as listed. */
  key: name.optional(),
  /** With `flush`: only this session's calls. */
  session: name.optional(),
  /** With `flush`: only this call. */
  callId: name.optional(),
  reason: z.string().min(1).max(500).optional(),
});

export function circuitRoutes(pawl: Pawl): readonly Route[] {
  return [getReliability(pawl), listCircuitChanges(pawl), changeReliability(pawl)];
}

function getReliability(pawl: Pawl): Route {
  return route({
    method: 'get',
    path: '/debug/tool-reliability',
    operationId: 'getReliability',
    permission: 'oversee',
    summary: 'Circuits, ledger counts and switches.',
    responses: { 200: ['The state of reliability', 'Reliability'] },
    handle: async () => ({ status: 200, body: await reliability(pawl) }),
  });
}

function listCircuitChanges(pawl: Pawl): Route {
  return route({
    method: 'get',
    path: '/v1/circuits/history',
    operationId: 'listCircuitChanges',
    permission: 'oversee',
    summary: 'What became of circuits in the last week, the newest first.',
    query: z.strictObject({ limit: queryNumber({ max: 1_000, fallback: 100, unit: 'changes' }) }),
    responses: { 200: ['Changes', 'CircuitHistory'] },
    handle: async ({ query }) => ({ status: 200, body: { changes: await pawl.circuitHistory(query.limit) } }),
  });
}

function changeReliability(pawl: Pawl): Route {
  return route({
    method: 'post',
    path: '/debug/tool-reliability',
    operationId: 'changeReliability',
    permission: 'oversee',
    summary:
      'Forces a circuit open, resets circuits to closed, forgets calls that have ended, or switches the reliability layer off and on for the fleet.',
    body: actionSchema,
    responses: { 200: ['The state of reliability, with the circuits that were changed', 'ReliabilityChange'] },
    async handle({ body, caller }) {
      const by = nameOf(caller);
      const { action, tool, context, key, session, callId, reason } = body;
      if (session !== undefined && action !== 'flush') throw invalid('session', `has no meaning with ${action}`);
      if (callId !== undefined && (action !== 'flush' || session !== undefined || tool !== undefined))
        throw invalid('callId', 'goes with flush alone, without a session and a tool');
      if (action === 'flush') {
        const meaningless = key !== undefined ? 'key' : context !== undefined ? 'context' : undefined;
        if (meaningless !== undefined)
          throw invalid(meaningless, 'has no meaning with flush; name a session or a tool');
        const flushed = await pawl.flush(
          defined<{ callId?: string; sessionKey?: string; tool?: string; by?: string }>({
            callId,
            sessionKey: session,
            tool,
            by,
          }),
        );
        return { status: 200, body: { ...flushed, ...(await reliability(pawl)) } };
      }
      if (action === 'disable' || action === 'enable') {
        if (key !== undefined || context !== undefined)
          throw invalid(
            key === undefined ? 'context' : 'key',
            `has no meaning with ${action}; name a tool, or none for all`,
          );
        await pawl.setReliability(
          action === 'enable',
          defined<{ tool?: string; reason?: string; by?: string }>({ tool, reason, by }),
        );
        return { status: 200, body: await reliability(pawl) };
      }
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
        by,
      );
      return { status: 200, body: { changed: changed.map(circuitView), ...(await reliability(pawl)) } };
    },
  });
}

function invalid(path: string, message: string): PawlError {
  return new PawlError('CONTRACT_INVALID', `The body is not usable: ${path}: ${message}.`, {
    issues: [{ path, message }],
  });
}

async function tenantCircuit(pawl: Pawl, tool: string, tenantId: string): Promise<string> {
  const { tools } = await pawl.catalogue();
  const published = toolNamed(tools, tool);
  if (published === undefined) throw new PawlError('UNKNOWN_TOOL', `There is no tool ${JSON.stringify(tool)}.`);
  return `tool:${published.namespace}.${published.name}@${tenantId}`;
}

async function reliability(pawl: Pawl): Promise<object> {
  const [circuits, counts, layer] = await Promise.all([pawl.circuits(), tierCounts(pawl.backend), pawl.reliability()]);
  const { enabled, openMode, deriveKeys, derivedReplay, tiers } = pawl.settings.reliability;
  return {
    circuits: circuits.map(circuitView),
    ledger: {
      inflight: counts.reduce((sum, { inflight }) => sum + inflight, 0),
      calls: counts.reduce((sum, { calls }) => sum + calls, 0),
      tiers: Object.fromEntries(TIERS.map((tier, index) => [tier, counts[index]])),
    },
    switches: {
      // What works now; `configured` is what this process was started with.
      enabled: layer.enabled,
      configured: enabled,
      operator: layer.words,
      openMode,
      deriveKeys,
      derivedReplay,
      tiers,
      tools: layer.tools.map(({ tool, modes }) => ({ tool, ...modes })),
      disabledTools: Object.entries(pawl.settings.tools)
        .filter(([, policy]) => policy.enabled === false)
        .map(([tool]) => tool),
    },
    shadow: layer.shadow,
  };
}
