/** `/debug/tool-reliability`: circuits, ledger counts and switches, and the operator's changes to them. */
import { z } from 'zod';
import { invalidInput, PawlError } from '../../../shared/errors/failure.ts';
import { TIERS, toolNamed } from '../../../shared/tools/tool.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { startOf } from '../../../shared/util/text/text-cut.ts';
import type { Pawl } from '../../client.ts';
import { tierCounts } from '../../operations/tier-counts.ts';
import { queryNumber, type Route, route } from '../core/route.ts';
import { circuitView } from '../core/views.ts';
import { callerName } from './approvals.ts';

const ACTIONS = ['force_open', 'reset', 'flush', 'disable', 'enable'] as const;
const name = z.string().min(1).max(512);

const actionSchema = z.strictObject({
  action: z.enum(ACTIONS, {
    error: (issue) =>
      `must be one of ${ACTIONS.join(', ')}; got ${startOf(JSON.stringify(issue.input) ?? 'nothing', 80)}`,
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

export const circuitRoutes: readonly Route[] = [
  route('get /debug/tool-reliability', {
    operationId: 'getReliability',
    permission: 'oversee',
    summary: 'Circuits, ledger counts and switches.',
    responses: { 200: ['The state of reliability', 'Reliability'] },
    answer: ({ pawl }) => reliability(pawl),
  }),
  route('get /v1/circuits/history', {
    operationId: 'listCircuitChanges',
    permission: 'oversee',
    summary: 'Changes of circuits in the last week, the newest first.',
    query: z.strictObject({ limit: queryNumber({ max: 1_000, fallback: 100, unit: 'changes' }) }),
    responses: { 200: ['Changes', 'CircuitHistory'] },
    answer: async ({ pawl, query }) => ({ changes: await pawl.circuits.history(query.limit) }),
  }),
  route('post /debug/tool-reliability', {
    operationId: 'changeReliability',
    permission: 'oversee',
    summary:
      'Forces a circuit open, resets circuits to closed, removes finished calls, or switches the reliability layer off and on for the fleet.',
    body: actionSchema,
    responses: { 200: ['The state of reliability, with the circuits that were changed', 'ReliabilityChange'] },
    answer: ({ pawl, body, caller }) => change(pawl, body, callerName(caller)),
  }),
];

type Action = z.output<typeof actionSchema>;

async function change(pawl: Pawl, request: Action, by: string): Promise<object> {
  checkFields(request);
  const { action, tool, session, callId, reason } = request;
  switch (action) {
    case 'flush': {
      const flushed = await pawl.calls.flush({ ...defined({ callId, sessionKey: session, tool }), by });
      return { ...flushed, ...(await reliability(pawl)) };
    }
    case 'disable':
    case 'enable':
      await pawl.reliability.set(action === 'enable', { ...defined({ tool, reason }), by });
      return reliability(pawl);
    default:
      return setCircuit(pawl, request, action, by);
  }
}

/** Refuses fields that have no meaning for the action. Throws `CONTRACT_INVALID`. */
function checkFields({ action, tool, context, key, session, callId }: Action): void {
  if (session !== undefined && action !== 'flush') throw invalid('session', `has no meaning with ${action}`);
  if (callId !== undefined && (action !== 'flush' || session !== undefined || tool !== undefined))
    throw invalid('callId', 'is allowed only with flush, and without a session or a tool');
  if (action === 'force_open' || action === 'reset') {
    if (action === 'force_open' && tool === undefined && key === undefined)
      throw invalid('tool', 'is required for force_open; or give the key of a circuit');
    if (context !== undefined && tool === undefined) throw invalid('tool', 'is required with context');
    return;
  }
  const unusedField = key !== undefined ? 'key' : context !== undefined ? 'context' : undefined;
  const hint = action === 'flush' ? 'name a session or a tool' : 'name a tool, or none for all';
  if (unusedField !== undefined) throw invalid(unusedField, `has no meaning with ${action}; ${hint}`);
}

async function setCircuit(
  pawl: Pawl,
  { tool, context, key, reason }: Action,
  action: 'force_open' | 'reset',
  by: string,
): Promise<object> {
  const ofTenant = tool !== undefined && context !== undefined ? await tenantCircuit(pawl, tool, context) : undefined;
  const selected = key ?? ofTenant;
  const circuits = selected === undefined ? defined({ tool }) : { key: selected };
  const changed = await pawl.circuits.set(action, circuits, reason, by);
  return { changed: changed.map(circuitView), ...(await reliability(pawl)) };
}

function invalid(path: string, message: string): PawlError {
  return invalidInput('The body is not usable', [{ path, message }], 'the body');
}

async function tenantCircuit(pawl: Pawl, tool: string, tenantId: string): Promise<string> {
  const { tools } = await pawl.catalogue();
  const published = toolNamed(tools, tool);
  if (published === undefined) throw new PawlError('UNKNOWN_TOOL', `There is no tool ${JSON.stringify(tool)}.`);
  return `tool:${published.namespace}.${published.name}@${tenantId}`;
}

async function reliability(pawl: Pawl): Promise<object> {
  const [circuits, counts, layer] = await Promise.all([
    pawl.circuits.list(),
    tierCounts(pawl.backend),
    pawl.reliability.read(),
  ]);
  const { enabled, openMode, deriveKeys, derivedReplay, tiers } = pawl.settings.reliability;
  const total = (field: keyof (typeof counts)[number]) => counts.reduce((sum, each) => sum + each[field], 0);
  return {
    circuits: circuits.map(circuitView),
    ledger: {
      inflight: total('inflight'),
      delayed: total('delayed'),
      pending: total('pending'),
      calls: total('calls'),
      tiers: Object.fromEntries(TIERS.map((tier, index) => [tier, counts[index]])),
    },
    switches: {
      // The current state; `configured` is the setting that this process was started with.
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
