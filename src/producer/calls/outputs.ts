/** Complete outputs of successful calls, whose envelopes may show only a part. Both functions throw `UNKNOWN_CALL` without an output. */
import { Readable } from 'node:stream';
import { PawlError } from '../../shared/errors/failure.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';

export async function readOutput(ledger: Pick<Ledger, 'outcome'>, callId: string): Promise<unknown> {
  const output = (await ledger.outcome(callId))?.output;
  if (output === undefined) throw withoutOutput(callId);
  return output.content;
}

/** The output as JSON text, streamed from Redis in parts. */
export async function streamOutput(ledger: Pick<Ledger, 'output'>, callId: string): Promise<Readable> {
  const parts = await ledger.output(callId);
  if (parts === undefined) throw withoutOutput(callId);
  // The first part is read before anything is sent, so that its error can still be a response.
  const first = await parts.next();
  return Readable.from(startingWith(first.value ?? Buffer.alloc(0), parts), { objectMode: false });
}

function withoutOutput(callId: string): PawlError {
  return new PawlError('UNKNOWN_CALL', `Call ${callId} has no output: it failed, still runs, or has expired.`);
}

async function* startingWith(first: Buffer, rest: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  yield first;
  yield* rest;
}
