/** The answer of each front door to each failure code: HTTP, the command line and MCP. */
import type { FailureCode } from './failure-codes.ts';

/** A name of the CLI's exit codes (`src/cli/exit-codes.ts`). */
export type FailureExit =
  | 'failed'
  | 'usage'
  | 'circuitOpen'
  | 'timeout'
  | 'denied'
  | 'outcomeUnknown'
  | 'redisOutOfReach';

export interface FailureResponse {
  /** The HTTP status of a request that ends with the code. */
  readonly http: number;
  /** The exit code of a command that ends with the code. `usage` holds only until the call has run. */
  readonly exit: FailureExit;
  /**
   * `toolResult`: the model can react, so it reads the failure as a result with `isError`. `protocolError`: the fleet is at fault,
   * and other words of the model would not help.
   */
  readonly mcp: 'toolResult' | 'protocolError';
}

/** The status of a code that ends calls but no request. A request that ends with it shows a defect of the server. */
const DEFECT = 500;

/** A code without a row does not compile. */
export const FAILURE_RESPONSES: Readonly<Record<FailureCode, FailureResponse>> = {
  CONTRACT_INVALID: { http: 400, exit: 'usage', mcp: 'toolResult' },
  PLAN_INVALID: { http: 400, exit: 'usage', mcp: 'toolResult' },
  INVALID_PARAMS: { http: 400, exit: 'usage', mcp: 'toolResult' },
  DEDUPE_REQUIRED: { http: 400, exit: 'usage', mcp: 'toolResult' },
  UNKNOWN_TOOL: { http: 404, exit: 'usage', mcp: 'toolResult' },
  UNKNOWN_SESSION: { http: 404, exit: 'usage', mcp: 'toolResult' },
  SESSION_CLOSED: { http: 409, exit: 'usage', mcp: 'toolResult' },
  UNKNOWN_CALL: { http: 404, exit: 'usage', mcp: 'toolResult' },
  CALL_NOT_RESOLVABLE: { http: 409, exit: 'failed', mcp: 'toolResult' },
  CALL_NOT_REDRIVABLE: { http: 409, exit: 'failed', mcp: 'toolResult' },
  CALL_NOT_COMPENSABLE: { http: 409, exit: 'failed', mcp: 'toolResult' },
  PERMISSION_DENIED: { http: 403, exit: 'denied', mcp: 'toolResult' },
  HOOK_FAILED: { http: 403, exit: 'failed', mcp: 'toolResult' },
  UNKNOWN_REDRIVE: { http: 404, exit: 'usage', mcp: 'toolResult' },
  UNKNOWN_APPROVAL: { http: 404, exit: 'usage', mcp: 'toolResult' },
  APPROVAL_STALE: { http: 409, exit: 'failed', mcp: 'toolResult' },
  APPROVAL_INVALID: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  IDEMPOTENCY_CONFLICT: { http: 422, exit: 'failed', mcp: 'toolResult' },
  IN_FLIGHT: { http: 409, exit: 'failed', mcp: 'toolResult' },
  LOOP_DETECTED: { http: 429, exit: 'failed', mcp: 'toolResult' },
  BUDGET_EXHAUSTED: { http: 429, exit: 'failed', mcp: 'toolResult' },
  OVERLOADED: { http: 429, exit: 'failed', mcp: 'toolResult' },
  CIRCUIT_OPEN: { http: DEFECT, exit: 'circuitOpen', mcp: 'toolResult' },
  CONFIGURATION: { http: DEFECT, exit: 'usage', mcp: 'toolResult' },
  BACKEND_UNAVAILABLE: { http: 503, exit: 'redisOutOfReach', mcp: 'protocolError' },
  AUDIT_UNAVAILABLE: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  TIMEOUT: { http: DEFECT, exit: 'timeout', mcp: 'toolResult' },
  UNKNOWN_COMPLETION: { http: 404, exit: 'usage', mcp: 'toolResult' },
  COMPLETION_USED: { http: 409, exit: 'failed', mcp: 'toolResult' },
  COMPLETION_INVALID: { http: 422, exit: 'usage', mcp: 'toolResult' },
  COMPLETION_EXPIRED: { http: 410, exit: 'timeout', mcp: 'toolResult' },
  DEADLINE_EXCEEDED: { http: DEFECT, exit: 'timeout', mcp: 'toolResult' },
  CANCELLED: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  DRAINED: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  LEASE_LOST: { http: 409, exit: 'failed', mcp: 'toolResult' },
  OUTCOME_UNKNOWN: { http: DEFECT, exit: 'outcomeUnknown', mcp: 'toolResult' },
  POISONED: { http: DEFECT, exit: 'outcomeUnknown', mcp: 'toolResult' },
  RESULT_TOO_LARGE: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  CHECKPOINT_INVALID: { http: DEFECT, exit: 'failed', mcp: 'protocolError' },
  RESULT_INVALID: { http: DEFECT, exit: 'failed', mcp: 'protocolError' },
  NOT_FOUND: { http: 404, exit: 'usage', mcp: 'toolResult' },
  PRECONDITION_FAILED: { http: 412, exit: 'failed', mcp: 'toolResult' },
  TOOL_FAILED: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  SIGNATURE_INVALID: { http: 502, exit: 'failed', mcp: 'protocolError' },
  TOOL_UNAVAILABLE: { http: DEFECT, exit: 'usage', mcp: 'protocolError' },
  PARAMS_LOST: { http: 503, exit: 'failed', mcp: 'toolResult' },
  RESULT_LOST: { http: 410, exit: 'failed', mcp: 'toolResult' },
  DEFINITION_CHANGED: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  CONNECTION_REFUSED: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  DNS_FAILED: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  UNREACHABLE: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  CONNECT_TIMEOUT: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  CONNECTION_RESET: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  CLIENT_GONE: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  CLIENT_LOST: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  MCP_UNAVAILABLE: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  MCP_PROTOCOL: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  NO_CONSENSUS: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  UPSTREAM_TIMEOUT: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  HTTP_408: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  HTTP_429: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  HTTP_500: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  HTTP_502: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  HTTP_503: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  HTTP_504: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  HTTP_4XX: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
  HTTP_5XX: { http: DEFECT, exit: 'failed', mcp: 'toolResult' },
};
