/**
 * Tools that outside clients run (C21): a client says that it serves them, is given calls, and hands back what came of each. What
 * passes between the two, and what of it is believed.
 */
import { z } from 'zod';
import { ToolError } from '../errors/failure.ts';
import type { ContentBlock, ToolResult } from '../tools/tool-result.ts';

/** How long a client is believed to be there after it was last heard of. */
export const CLIENT_LEASE = { minMs: 1_000, maxMs: 600_000, defaultMs: 30_000 } as const;

export const MAX_CLIENT_TOOLS = 256;

/** One attempt of one call, as its client gets it. */
export interface ClientCall {
  readonly callId: string;
  /** Names the attempt: it goes back with the result. */
  readonly fence: number;
  /** `namespace.name`. */
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** 1 for the first. */
  readonly attempt: number;
  readonly sessionKey: string;
  readonly actorId: string;
  readonly agentId?: string;
  readonly tenantId?: string;
  readonly turnId?: string;
  /** Stable over all attempts of the call. */
  readonly idempotencyKey: string;
  readonly deadlineAtMs?: number;
  /** Of the attempt, from when it was offered. */
  readonly timeoutMs: number;
  readonly traceparent?: string;
}

const contentItem = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('inputText'), text: z.string() }),
  z.strictObject({ type: z.literal('inputImage'), imageUrl: z.string().min(1) }),
]);

const errorCode = z.string().regex(/^[A-Z][A-Z0-9_]{0,63}$/, 'must be capitals, digits and _');

/** What a client says came of a call: `output` and what may stand beside it, or `contentItems` with `success`, or an `error`. */
export const clientAnswerSchema = z
  .strictObject({
    fence: z.number().int().min(1),
    output: z.unknown(),
    display: z.string(),
    artifacts: z.array(z.looseObject({})),
    content: z.array(z.looseObject({})),
    success: z.boolean(),
    tainted: z.boolean(),
    contentItems: z.array(contentItem),
    error: z.strictObject({
      message: z.string().min(1),
      code: errorCode.optional(),
      /** Another attempt could help; made where the tool's effects allow it. */
      retriable: z.boolean().optional(),
      /** Proves that no effect took place. */
      nothingHappened: z.boolean().optional(),
      retryAfterMs: z.number().int().min(0).optional(),
    }),
  })
  .partial()
  .required({ fence: true })
  .refine(
    (answer) => ['output', 'contentItems', 'error'].filter((name) => name in answer).length === 1,
    'needs one of output, contentItems and error',
  );
export type PostedAnswer = z.output<typeof clientAnswerSchema>;

/** The same, as it is kept for the worker that waits. */
export type ClientAnswer =
  | { readonly kind: 'result'; readonly result: ToolResult<unknown> }
  | { readonly kind: 'failure'; readonly failure: NonNullable<PostedAnswer['error']> };

export function clientAnswer({ fence: _, error, contentItems, ...result }: PostedAnswer): ClientAnswer {
  if (error !== undefined) return { kind: 'failure', failure: error };
  if (contentItems !== undefined) return { kind: 'result', result: resultOfItems(contentItems, result.success) };
  // What it is made of is checked where every tool's result is.
  return { kind: 'result', result: result as unknown as ToolResult<unknown> };
}

function resultOfItems(items: NonNullable<PostedAnswer['contentItems']>, success = true): ToolResult<unknown> {
  const texts = items.flatMap((item) => (item.type === 'inputText' ? [item.text] : []));
  const content = items.flatMap((item) => (item.type === 'inputImage' ? [imageOf(item.imageUrl)] : []));
  return { output: texts.join('\n'), success, ...(content.length === 0 ? {} : { content }) };
}

function imageOf(url: string): ContentBlock {
  const [, mimeType, data] = /^data:([\w.+-]+\/[\w.+-]+);base64,([\s\S]*)$/.exec(url) ?? [];
  if (mimeType === undefined || data === undefined) return { type: 'resource', uri: url };
  return { type: 'image', mimeType, data };
}

/** What a client's failure is to whoever ran the attempt. */
export function clientError({ message, ...rest }: NonNullable<PostedAnswer['error']>): ToolError {
  return new ToolError(message, rest as ConstructorParameters<typeof ToolError>[1]);
}
