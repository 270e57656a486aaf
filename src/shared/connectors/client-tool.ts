/**
 * Client-executed tools: a client registers the tools that it serves, takes their calls and returns the results. This file has the messages
 * and the check of an answer.
 */
import { z } from 'zod';
import { ToolError } from '../errors/failure.ts';
import type { CapabilityOwner } from '../tools/capabilities.ts';
import type { ContentBlock, ToolResult } from '../tools/tool-result.ts';

/** The time for which a client counts as connected after its last request. */
export const CLIENT_LEASE = { minMs: 1_000, maxMs: 600_000, defaultMs: 30_000 } as const;

export const MAX_CLIENT_TOOLS = 256;

/** One attempt of a call, as its client gets it. */
export interface ClientCall extends CapabilityOwner {
  /** Identifies the attempt; the client returns it with the result. */
  readonly fence: number;
  /** `namespace.name`. */
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** 1 for the first. */
  readonly attempt: number;
  /** Stable over all attempts of the call. */
  readonly idempotencyKey: string;
  readonly deadlineAtMs?: number;
  /** The time limit of the attempt, counted from its offer to the client. */
  readonly timeoutMs: number;
  readonly traceparent?: string;
}

const contentItem = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('inputText'), text: z.string() }),
  z.strictObject({ type: z.literal('inputImage'), imageUrl: z.string().min(1) }),
]);

/** Each part that is wrong costs the event loop an error of its own. */
const MAX_PARTS = 10_000;

const errorCode = z.string().regex(/^[A-Z][A-Z0-9_]{0,63}$/, 'must be capitals, digits and _');

/** A client's answer to a call: `output` with further members of a result, or `contentItems` with `success`, or an `error`. */
export const clientAnswerSchema = z
  .strictObject({
    fence: z.number().int().min(1),
    output: z.unknown(),
    display: z.string(),
    artifacts: z.array(z.looseObject({})).max(MAX_PARTS),
    content: z.array(z.looseObject({})).max(MAX_PARTS),
    success: z.boolean(),
    tainted: z.boolean(),
    contentItems: z.array(contentItem).max(MAX_PARTS),
    error: z.strictObject({
      message: z.string().min(1),
      code: errorCode.optional(),
      /** Whether another attempt may help. It follows only where the tool's effects allow it. */
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

/** The answer as it is stored for the waiting worker. */
export type ClientAnswer =
  | { readonly kind: 'result'; readonly result: ToolResult<unknown> }
  | { readonly kind: 'failure'; readonly failure: NonNullable<PostedAnswer['error']> };

export function clientAnswer({ fence: _, error, contentItems, ...result }: PostedAnswer): ClientAnswer {
  if (error !== undefined) return { kind: 'failure', failure: error };
  if (contentItems !== undefined) return { kind: 'result', result: itemsResult(contentItems, result.success) };
  // `normalizeResult` checks the content, as for every tool.
  return { kind: 'result', result: result as unknown as ToolResult<unknown> };
}

function itemsResult(items: NonNullable<PostedAnswer['contentItems']>, success = true): ToolResult<unknown> {
  const texts = items.flatMap((item) => (item.type === 'inputText' ? [item.text] : []));
  const content = items.flatMap((item) => (item.type === 'inputImage' ? [imageBlock(item.imageUrl)] : []));
  return { output: texts.join('\n'), success, ...(content.length === 0 ? {} : { content }) };
}

function imageBlock(url: string): ContentBlock {
  const [, mimeType, data] = /^data:([\w.+-]+\/[\w.+-]+);base64,([\s\S]*)$/.exec(url) ?? [];
  if (mimeType === undefined || data === undefined) return { type: 'resource', uri: url };
  return { type: 'image', mimeType, data };
}

/** The error that a client's failure becomes in the worker that runs the attempt. */
export function clientError({ message, ...rest }: NonNullable<PostedAnswer['error']>): ToolError {
  return new ToolError(message, rest as ConstructorParameters<typeof ToolError>[1]);
}
