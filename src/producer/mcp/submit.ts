/** Submits the call of an MCP request. */
import { idempotencyKeySchema } from '../../shared/calls/envelope.ts';
import { startTimeOf, withStartTime } from '../../shared/calls/start-time.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import type { ProgressEvent } from '../calls/result-waiters.ts';
import type { Submission } from '../calls/submission.ts';
import type { Pawl } from '../client.ts';
import { submitterOf } from '../http/routes/approvals.ts';
import { invalidParams } from './errors.ts';
import { clientSession, type McpClient } from './request.ts';
import type { McpTool } from './tools.ts';

interface McpSubmitOptions {
  readonly params: Readonly<Record<string, unknown>>;
  readonly responses: Readonly<Record<string, unknown>>;
  readonly state: unknown;
  /** The idempotency key of the round of questions. Default: derived from the client's key and the answers. */
  readonly key?: string;
  readonly onProgress?: (event: ProgressEvent) => void;
  readonly onApproval?: () => void;
}

/** Submits the call. The answers to a tool's questions are put into the parameter for them, which a client cannot set itself. */
export async function submitCall(
  pawl: Pawl,
  client: Pick<McpClient, 'caller' | 'sessionKey' | 'idempotencyKey' | 'turnId' | 'traceparent' | 'canAsk'> &
    Partial<Pick<McpClient, 'start' | 'callbackUrl'>>,
  tool: McpTool,
  { params: toolParams, responses, state, key, onProgress, onApproval }: McpSubmitOptions,
): Promise<Submission> {
  const { answersName } = tool;
  const hasAnswers = Object.keys(responses).length > 0 || state !== undefined;
  const params =
    answersName === undefined
      ? toolParams
      : {
          ...toolParams,
          [answersName]: { responses, canAsk: client.canAsk, ...(state !== undefined && { state }) },
        };
  // Each round of questions is a call of its own.
  const round = hasAnswers ? `#${digest(canonicalJson({ responses, state: state ?? null }))}` : '';
  const idempotencyKey = key ?? (client.idempotencyKey === undefined ? undefined : `${client.idempotencyKey}${round}`);
  if (idempotencyKey !== undefined && !idempotencyKeySchema.safeParse(idempotencyKey).success)
    throw invalidParams('The idempotency key must have 1 to 1024 bytes of UTF-8.');
  const session = await clientSession(pawl, client);
  const start = startTimeOf(client.start ?? {}, pawl.backend.clock.now());
  const options = {
    namespace: tool.namespace,
    ...defined({ idempotencyKey, turnId: client.turnId, traceparent: client.traceparent }),
  };
  return pawl.submit(session.envelope(tool.name, params, withStartTime(options, start)), {
    start,
    ...(client.caller.id === 'stdio' ? {} : submitterOf(client.caller)),
    ...defined({ callbackUrl: client.callbackUrl, onProgress, onApproval }),
  });
}
