/** From an MCP request to a call in the queue. */
import { ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server';
import { idempotencyKeySchema } from '../../shared/calls/envelope.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import type { ProgressEvent } from '../calls/result-waiters.ts';
import type { Submission } from '../calls/submission.ts';
import type { Pawl } from '../client.ts';
import { submitterOf } from '../http/routes/approvals.ts';
import { type McpClient, sessionFor } from './request.ts';
import type { McpTool } from './tools.ts';

export interface SubmitOptions {
  readonly responses: Readonly<Record<string, unknown>>;
  readonly state: unknown;
  /** Of the round of questions; default: from the client's key and the answers. */
  readonly key?: string;
  readonly onProgress?: (event: ProgressEvent) => void;
  readonly onApproval?: () => void;
}

/** Hands the call in. A tool that asks gets its answers in the parameter that it has for them; nobody else can write there. */
export async function submitCall(
  pawl: Pawl,
  client: Pick<McpClient, 'caller' | 'sessionKey' | 'idempotencyKey' | 'turnId' | 'traceparent' | 'canAsk'>,
  published: McpTool,
  given: Readonly<Record<string, unknown>>,
  { responses, state, key, onProgress, onApproval }: SubmitOptions,
): Promise<Submission> {
  const { answersName } = published;
  const answered = Object.keys(responses).length > 0 || state !== undefined;
  const params =
    answersName === undefined
      ? given
      : {
          ...given,
          [answersName]: { responses, canAsk: client.canAsk, ...(state === undefined ? {} : { state }) },
        };
  // Each round of questions is a call of its own.
  const round = answered ? `#${digest(canonicalJson({ responses, state: state ?? null }))}` : '';
  const idempotencyKey = key ?? (client.idempotencyKey === undefined ? undefined : `${client.idempotencyKey}${round}`);
  if (idempotencyKey !== undefined && !idempotencyKeySchema.safeParse(idempotencyKey).success)
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'The idempotency key must have 1 to 1024 bytes of UTF-8.');
  const session = await sessionFor(pawl, client);
  const envelope = session.envelope(published.name, params, {
    namespace: published.namespace,
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    ...(client.turnId === undefined ? {} : { turnId: client.turnId }),
    ...(client.traceparent === undefined ? {} : { traceparent: client.traceparent }),
  });
  return pawl.submit(envelope, {
    ...(client.caller.id === 'stdio' ? {} : submitterOf(client.caller)),
    ...(onProgress === undefined ? {} : { onProgress }),
    ...(onApproval === undefined ? {} : { onApproval }),
  });
}
