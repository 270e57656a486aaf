/**
 * The text of a stored request. Each call has one in its record and in the message that dispatches it, so it must be short: common fields
 * have no names, and defaults are left out.
 */
import { CONTRACT_VERSION, LARGEST_RETRY_BUDGET, type ToolCallEnvelope } from '../../../calls/envelope.ts';
import type { Effects } from '../../../retries/effects.ts';
import { packId, unpackId } from '../../../util/text/packed-id.ts';
import type { StoredRequest } from '../call-record.ts';

const DEFAULT_NAMESPACE = 'tools';
const PAYLOAD_VERSION = '1.0';
const EFFECT_LETTERS: Readonly<Record<Effects, string>> = {
  none: 'n',
  idempotent: 'i',
  keyed: 'k',
  probe: 'p',
  once: 'o',
};
const EFFECTS = Object.fromEntries(
  Object.entries(EFFECT_LETTERS).map(([effects, letter]) => [letter, effects as Effects]),
);

/** The fields that most requests do not have. */
interface RareFields {
  /** The contract version, if it is not the current one. */
  readonly contract?: string;
  readonly namespace?: string;
  readonly toolCallId?: string;
  readonly target?: Omit<ToolCallEnvelope['target'], 'sessionKey' | 'actorId'>;
  readonly callHints?: ToolCallEnvelope['payload']['callHints'];
  readonly transport?: Partial<ToolCallEnvelope['transport']>;
  readonly control?: ToolCallEnvelope['control'];
  readonly trace?: ToolCallEnvelope['trace'];
  /** The idempotency key that the tool receives, if the caller set none. */
  readonly key?: string;
  readonly request?: Omit<StoredRequest, 'envelope' | 'tool' | 'idempotencyKey'>;
}

/** Tool, version, definition, effects (a letter or ''), request ID, session, actor, caller's key or '', parameters, and the rest. */
type StoredFields = readonly [
  string,
  string,
  string,
  string,
  string,
  string,
  string,
  string,
  ToolCallEnvelope['payload']['params'],
  RareFields?,
];

/** A request as JSON. Equal requests have equal texts. */
export function requestText(request: StoredRequest): string {
  const { envelope, tool } = request;
  const { target, payload } = envelope;
  const rest = rareFields(request);
  const stored: StoredFields = [
    envelope.toolName,
    tool.version,
    tool.definition,
    tool.effects === undefined ? '' : EFFECT_LETTERS[tool.effects],
    packId(envelope.requestId),
    packId(target.sessionKey),
    target.actorId,
    packId(payload.idempotencyKey ?? ''),
    payload.params,
  ];
  return JSON.stringify(rest === undefined ? stored : [...stored, rest]);
}

function rareFields(request: StoredRequest): RareFields | undefined {
  const { envelope, tool: _tool, idempotencyKey, ...otherFields } = request;
  const { toolNamespace, toolCallId, payload, control, trace } = envelope;
  const { sessionKey: _session, actorId: _actor, ...target } = envelope.target;
  const transport = rareTransport(envelope.transport);
  const rest: { -readonly [Name in keyof RareFields]: RareFields[Name] } = {};
  if (envelope.contractVersion !== CONTRACT_VERSION) rest.contract = envelope.contractVersion;
  if (toolNamespace !== DEFAULT_NAMESPACE) rest.namespace = toolNamespace;
  if (toolCallId !== undefined) rest.toolCallId = toolCallId;
  if (!isEmpty(target)) rest.target = target;
  if (payload.callHints !== undefined) rest.callHints = payload.callHints;
  if (!isEmpty(transport)) rest.transport = transport;
  if (!isEmpty(control)) rest.control = control;
  if (!isEmpty(trace)) rest.trace = trace;
  if (payload.idempotencyKey === undefined) rest.key = idempotencyKey;
  if (!isEmpty(otherFields)) rest.request = otherFields;
  return isEmpty(rest) ? undefined : rest;
}

function rareTransport({ dedupeMode, retryBudget, ...hint }: ToolCallEnvelope['transport']) {
  const isLargest =
    retryBudget.maxAttempts === LARGEST_RETRY_BUDGET.maxAttempts &&
    retryBudget.maxElapsedMs === LARGEST_RETRY_BUDGET.maxElapsedMs;
  return {
    ...(dedupeMode === 'enforced' ? {} : { dedupeMode }),
    ...(isLargest ? {} : { retryBudget }),
    ...hint,
  };
}

function isEmpty(value: object): boolean {
  for (const name in value) if (value[name as keyof typeof value] !== undefined) return false;
  return true;
}

/** Reads the text of a request. Throws for any other text. */
export function parseRequest(text: string): StoredRequest {
  const [toolName, version, definition, effects, requestId, session, actorId, packedKey, params, rest = {}] =
    JSON.parse(text) as StoredFields;
  const key = unpackId(packedKey);
  const { dedupeMode = 'enforced', retryBudget = LARGEST_RETRY_BUDGET, ...hint } = rest.transport ?? {};
  const envelope: ToolCallEnvelope = {
    contractVersion: (rest.contract ?? CONTRACT_VERSION) as typeof CONTRACT_VERSION,
    requestId: unpackId(requestId),
    ...(rest.toolCallId !== undefined && { toolCallId: rest.toolCallId }),
    toolName,
    toolNamespace: rest.namespace ?? DEFAULT_NAMESPACE,
    target: { sessionKey: unpackId(session), actorId, ...rest.target },
    payload: {
      version: PAYLOAD_VERSION,
      params,
      ...(key === '' ? {} : { idempotencyKey: key }),
      ...(rest.callHints !== undefined && { callHints: rest.callHints }),
    },
    transport: { dedupeMode, retryBudget, ...hint },
    control: rest.control ?? {},
    trace: rest.trace ?? {},
  };
  const storedEffects = EFFECTS[effects];
  return {
    envelope,
    tool: { version, definition, ...(storedEffects !== undefined && { effects: storedEffects }) },
    idempotencyKey: key === '' ? (rest.key ?? '') : key,
    ...rest.request,
  };
}
