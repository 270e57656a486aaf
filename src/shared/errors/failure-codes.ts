/**
 * The catalogue of what can go wrong with a call. A new code also needs its row in `failure-responses.ts`, which does not compile
 * without it, and one in `docs/call-lifecycle.md`.
 */

export type FailureClass =
  | 'request'
  | 'permission'
  | 'conflict'
  | 'transport'
  | 'throttle'
  | 'server'
  | 'caller'
  | 'timeout'
  | 'cancelled'
  | 'tool'
  | 'result'
  | 'lost'
  | 'circuit'
  | 'backend';

export interface FailureKind {
  readonly class: FailureClass;
  /** Another attempt could succeed. Whether it may be made depends on the tool's effects too (`retry.ts`). */
  readonly retriable: boolean;
  /** The failure proves that no effect took place, so that even a `once` tool may run again. */
  readonly nothingHappened: boolean;
  /** The failure counts in the circuit's window. */
  readonly againstCircuit: boolean;
  /** The text for the model and the caller, when the tool gave no message of its own. */
  readonly sentence: string;
  /** The text for the person on call. */
  readonly operator: string;
}

type Trait = 'retriable' | 'nothingHappened' | 'againstCircuit';

/** A trait that is not listed is false. */
const kind = (
  failureClass: FailureClass,
  traits: readonly Trait[],
  sentence: string,
  operator: string,
): FailureKind => ({
  class: failureClass,
  retriable: traits.includes('retriable'),
  nothingHappened: traits.includes('nothingHappened'),
  againstCircuit: traits.includes('againstCircuit'),
  sentence,
  operator,
});

export const FAILURES = {
  CONTRACT_INVALID: kind(
    'request',
    ['nothingHappened'],
    'The call does not follow the contract.',
    'The caller sent a malformed envelope.',
  ),
  INVALID_PARAMS: kind(
    'request',
    ['nothingHappened'],
    'The parameters do not match the tool’s schema.',
    'The model or caller sent parameters that the schema refuses.',
  ),
  DEDUPE_REQUIRED: kind(
    'request',
    ['nothingHappened'],
    'A tool that changes something takes no calls with dedupeMode "disabled".',
    'A caller switches deduplication off for a tool that is not read-only, and whose settings do not allow that.',
  ),
  UNKNOWN_TOOL: kind(
    'request',
    ['nothingHappened'],
    'There is no such tool.',
    'No worker has published a tool of this name.',
  ),
  UNKNOWN_SESSION: kind(
    'request',
    ['nothingHappened'],
    'There is no such session.',
    'The session was never opened or has expired.',
  ),
  SESSION_CLOSED: kind(
    'request',
    ['nothingHappened'],
    'The session is closed.',
    'A call came for a session that was closed.',
  ),
  UNKNOWN_CALL: kind(
    'request',
    ['nothingHappened'],
    'There is no call of this ID, or its record has expired.',
    'The record is past its time to live.',
  ),
  CALL_NOT_RESOLVABLE: kind(
    'conflict',
    ['nothingHappened'],
    'Only a call in doubt can be resolved.',
    'A resolution came for a call in another state.',
  ),
  CALL_NOT_COMPENSABLE: kind(
    'conflict',
    ['nothingHappened'],
    'The call cannot be undone.',
    'A compensation was asked for a call that did not succeed, is itself a compensation, or whose tool has no compensate.',
  ),
  PERMISSION_DENIED: kind(
    'permission',
    ['nothingHappened'],
    'This session may not do that.',
    'Policy, session kind or tier forbids the call.',
  ),
  HOOK_FAILED: kind(
    'permission',
    ['nothingHappened'],
    'A hook that guards the call failed, so that the call was stopped.',
    'A hook threw or was too late: its name and message are in the error.',
  ),
  UNKNOWN_APPROVAL: kind(
    'request',
    ['nothingHappened'],
    'There is no approval of this ID, or its record has expired.',
    'The record is past its time to live.',
  ),
  APPROVAL_STALE: kind(
    'conflict',
    ['nothingHappened'],
    'The approval is decided already, or is not what was shown.',
    'A decision came late, twice, or for something that has changed.',
  ),
  APPROVAL_INVALID: kind(
    'permission',
    ['nothingHappened'],
    'No valid approval covers this call.',
    'An approval was forged, replayed or outlived, or what it is about has changed: see the audit trail.',
  ),
  IDEMPOTENCY_CONFLICT: kind(
    'conflict',
    ['nothingHappened'],
    'The idempotency key was used before with other parameters.',
    'A caller reuses keys: see the first call under the same ID.',
  ),
  IN_FLIGHT: kind(
    'conflict',
    ['retriable', 'nothingHappened'],
    'A call with this key is still running.',
    'A best-effort caller met a running call.',
  ),
  LOOP_DETECTED: kind(
    'circuit',
    ['nothingHappened'],
    'This very call was made again and again; repeating it once more will not change its result.',
    'A session repeats one call: look at its agent. Raise reliability.loopGuard if that is meant to be.',
  ),
  BUDGET_EXHAUSTED: kind(
    'throttle',
    ['nothingHappened'],
    'A budget that the call takes from is spent.',
    'The message says whose budget, and what is spent of what. Raise it, or open a session with one of its own.',
  ),
  OVERLOADED: kind(
    'throttle',
    ['retriable', 'nothingHappened'],
    'There is too much work; calls of lower priority are refused for now.',
    'Calls come faster than workers of the tier end them: add workers, or raise admission.maxInflight.',
  ),
  CIRCUIT_OPEN: kind(
    'circuit',
    ['retriable', 'nothingHappened'],
    'The tool is failing and is being given time to recover.',
    'See the circuit and what it protects.',
  ),
  CONFIGURATION: kind(
    'request',
    ['nothingHappened'],
    'The configuration is not usable.',
    'A setting or definition is wrong; nothing was started.',
  ),
  BACKEND_UNAVAILABLE: kind(
    'backend',
    ['retriable', 'nothingHappened'],
    'The queue cannot be reached.',
    'Redis is down, full, read-only or out of reach.',
  ),
  AUDIT_UNAVAILABLE: kind(
    'backend',
    ['retriable', 'nothingHappened'],
    'The call may not run while it cannot be recorded.',
    'Redis does not take records of the audit trail: it is down, full or read-only, or the trail’s keys were changed. Or a worker cannot write to PAWL_DATA_DIR/used-approvals: the message says which.',
  ),
  TIMEOUT: kind(
    'timeout',
    ['retriable', 'againstCircuit'],
    'The tool did not finish within its time limit.',
    'Raise the limit or look at what the tool waits for.',
  ),
  DEADLINE_EXCEEDED: kind(
    'timeout',
    [],
    'The call’s deadline has passed.',
    'The call waited or ran past its deadline.',
  ),
  CANCELLED: kind('cancelled', [], 'The call was cancelled.', 'A caller or an operator cancelled the call.'),
  DRAINED: kind(
    'lost',
    ['retriable'],
    'The worker that ran the call was shut down.',
    'The grace period ended before the attempt did.',
  ),
  LEASE_LOST: kind(
    'lost',
    ['retriable'],
    'The worker lost its hold on the call.',
    'The worker was cut off from Redis or stood still.',
  ),
  OUTCOME_UNKNOWN: kind(
    'lost',
    [],
    'An attempt began and left no record: the effect may have happened.',
    'Find out whether the effect took place, then resolve the call.',
  ),
  POISONED: kind(
    'lost',
    [],
    'The call crashed every worker that ran it and was quarantined.',
    'Look for a crash or memory exhaustion in the tool with these parameters.',
  ),
  RESULT_TOO_LARGE: kind(
    'result',
    [],
    'The result is larger than the tool may return.',
    'Raise maxResultBytes or make the tool return less.',
  ),
  RESULT_INVALID: kind(
    'result',
    [],
    'The tool returned something that is not a valid result.',
    'The tool’s code or its output schema is wrong.',
  ),
  NOT_FOUND: kind(
    'caller',
    ['nothingHappened'],
    'What the call refers to does not exist.',
    'Nothing to do for the operator.',
  ),
  PRECONDITION_FAILED: kind(
    'caller',
    ['nothingHappened'],
    'The call’s precondition does not hold.',
    'Nothing to do for the operator.',
  ),
  TOOL_FAILED: kind(
    'tool',
    ['againstCircuit'],
    'The tool failed.',
    'The stack is in the worker’s log under the call’s ID.',
  ),
  SIGNATURE_INVALID: kind(
    'permission',
    ['nothingHappened'],
    'The call was not signed by a producer of this fleet.',
    'A program without a key wrote to Redis, or the processes have different PAWL_SIGNING_KEYS.',
  ),
  TOOL_UNAVAILABLE: kind(
    'request',
    ['retriable', 'nothingHappened'],
    'No worker can run the call.',
    'No living worker has the tool in a version, or knows the contract, that the call was made for.',
  ),
  PARAMS_LOST: kind(
    'backend',
    ['retriable', 'nothingHappened'],
    'The call’s parameters are not there any more.',
    'Redis has lost a part of large parameters, which have keys of their own: it evicts, was restored, or keys were deleted.',
  ),
  DEFINITION_CHANGED: kind(
    'conflict',
    ['retriable', 'nothingHappened'],
    'The tool’s definition changed after the call was validated.',
    'Workers run a definition that refuses what another one accepted: give it a new version.',
  ),
  CONNECTION_REFUSED: kind(
    'transport',
    ['retriable', 'nothingHappened', 'againstCircuit'],
    'The connection was refused.',
    'The service behind the tool is down.',
  ),
  DNS_FAILED: kind(
    'transport',
    ['retriable', 'nothingHappened', 'againstCircuit'],
    'The host name could not be resolved.',
    'DNS or the host name is wrong.',
  ),
  UNREACHABLE: kind(
    'transport',
    ['retriable', 'nothingHappened', 'againstCircuit'],
    'The host cannot be reached.',
    'Network or routing to the service is broken.',
  ),
  CONNECT_TIMEOUT: kind(
    'transport',
    ['retriable', 'nothingHappened', 'againstCircuit'],
    'The connection could not be made in time.',
    'The service does not accept connections.',
  ),
  CONNECTION_RESET: kind(
    'transport',
    ['retriable', 'againstCircuit'],
    'The connection broke.',
    'The service or something between closed the connection.',
  ),
  CLIENT_GONE: kind(
    'transport',
    ['nothingHappened'],
    'No client serves the tool now.',
    'The program that runs the tool is not connected: start it.',
  ),
  CLIENT_LOST: kind(
    'lost',
    ['retriable'],
    'The client that ran the call left before it answered.',
    'The program that ran the call died, or was cut off for longer than its lease.',
  ),
  MCP_UNAVAILABLE: kind(
    'transport',
    ['retriable', 'nothingHappened', 'againstCircuit'],
    'The MCP server behind the tool cannot be reached.',
    'The server does not start, or does not answer: its own words are in the error.',
  ),
  MCP_PROTOCOL: kind(
    'transport',
    ['againstCircuit'],
    'The MCP server broke the protocol.',
    'The server is broken or hostile; its connection was closed.',
  ),
  NO_CONSENSUS: kind(
    'result',
    [],
    'The workers that ran the call do not agree on its result.',
    'The digests of their results are in the error: look at what differs between the workers.',
  ),
  UPSTREAM_TIMEOUT: kind(
    'transport',
    ['retriable', 'againstCircuit'],
    'The service did not answer in time.',
    'The service is slow or hangs.',
  ),
  HTTP_408: kind(
    'server',
    ['retriable', 'againstCircuit'],
    'The service timed out (HTTP 408).',
    'The service is slow.',
  ),
  HTTP_429: kind(
    'throttle',
    ['retriable', 'nothingHappened', 'againstCircuit'],
    'The service asks to slow down (HTTP 429).',
    'A rate limit was reached.',
  ),
  HTTP_500: kind(
    'server',
    ['retriable', 'againstCircuit'],
    'The service failed (HTTP 500).',
    'The service behind the tool fails.',
  ),
  HTTP_502: kind(
    'server',
    ['retriable', 'againstCircuit'],
    'The service failed (HTTP 502).',
    'The service behind the tool fails.',
  ),
  HTTP_503: kind(
    'server',
    ['retriable', 'againstCircuit'],
    'The service is not available (HTTP 503).',
    'The service behind the tool is overloaded or down.',
  ),
  HTTP_504: kind(
    'server',
    ['retriable', 'againstCircuit'],
    'The service did not answer in time (HTTP 504).',
    'The service behind the tool is slow.',
  ),
  HTTP_4XX: kind(
    'caller',
    [],
    'The service refused the request.',
    'The request itself is wrong; a retry would not help.',
  ),
  HTTP_5XX: kind(
    'server',
    ['againstCircuit'],
    'The service failed.',
    'The service behind the tool fails in a way that a retry does not mend.',
  ),
} as const satisfies Record<string, FailureKind>;

export type FailureCode = keyof typeof FAILURES;
