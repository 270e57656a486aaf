/** Embeds texts as vectors, through an endpoint that speaks OpenAI's `POST /embeddings`. */
import { z } from 'zod';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { openNetwork } from './network.ts';

export type Embedder = (text: string) => Promise<readonly number[]>;

const TIMEOUT_MS = 15_000;
const answerSchema = z.object({ data: z.array(z.object({ embedding: z.array(z.number()).min(1) })).min(1) });

/** The operator chose the endpoint, so it may be private. Its errors are classified like those of every HTTP service. */
export function openEmbedder({ url, model, apiKey }: NonNullable<Settings['memory']['embedding']>): Embedder {
  const endpoint = new URL('embeddings', url.endsWith('/') ? url : `${url}/`);
  return async (text) => {
    const fetch = openNetwork({ signal: AbortSignal.timeout(TIMEOUT_MS), allowedHosts: [endpoint.host] });
    const authorization = apiKey && `Bearer ${apiKey}`;
    const headers = { 'content-type': 'application/json', ...defined({ authorization }) };
    const body = JSON.stringify({ model, input: [text], encoding_format: 'float' });
    const response = await fetch(endpoint, { method: 'POST', headers, body });
    if (!response.ok) {
      const error = new Error(`The embedding endpoint answered ${response.status}`);
      throw Object.assign(error, { status: response.status, headers: response.headers });
    }
    const answer = answerSchema.safeParse(await response.json().catch(asNoAnswer));
    const vector = answer.data?.data[0]?.embedding;
    if (vector === undefined)
      throw new PawlError(
        'RESULT_INVALID',
        'The embedding endpoint’s answer is not in OpenAI’s form: expected { data: [{ embedding: number[] }] }.',
      );
    return vector;
  };
}

/** A body that is no JSON is no answer; one that breaks off is a broken connection. */
function asNoAnswer(error: unknown): undefined {
  if (!(error instanceof SyntaxError)) throw error;
}
