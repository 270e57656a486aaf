/** `/v1/calls/{callId}/events`: the events of a call, as server-sent events. */
import type { Response } from 'express';
import { z } from 'zod';
import { isLong } from '../../../shared/util/json/json-stream.ts';
import {
  CALL_EVENT_TYPES,
  type CallEvent,
  compare,
  formatPosition,
  type Position,
  parsePosition,
} from '../../calls/timeline.ts';
import { type ApiDeps, type Route, route } from '../core/route.ts';
import { longJsonPieces } from '../core/stream-response.ts';
import { callFor } from './calls.ts';

/** A comment is sent this often, so that no proxy closes a silent connection. */
const KEEP_ALIVE_MS = 15_000;
/** A client with more unread data than this is disconnected, and reconnects for the rest. */
const MAX_UNREAD_BYTES = 1_024 * 1_024;
const RECONNECT_MS = 1_000;

const lastEventIdSchema = z
  .string()
  .refine((text) => parsePosition(text) !== undefined, { error: 'must be the ID of an event of this call' })
  .transform(parsePosition);

type EventRouteDeps = Pick<ApiDeps, 'pawl' | 'streams'>;

export const eventRoutes: readonly Route[] = [
  route('get /v1/calls/{callId}/events', {
    operationId: 'streamCallEvents',
    permission: 'use',
    summary: `The events of a call, as server-sent events (${CALL_EVENT_TYPES.join(', ')}). Ends with the call.`,
    headers: z.object({ 'last-event-id': lastEventIdSchema.optional() }),
    responses: {
      200: ['A stream of events', 'text/event-stream'],
      204: 'The last event was the call’s end: nothing follows',
    },
    async handle({ pawl, streams, path, headers, caller }) {
      const record = await callFor(pawl, caller, path.callId, 'readBrief');
      const lastPosition = headers['last-event-id'];
      const isComplete = lastPosition !== undefined && compare(lastPosition, [record.fence, 3, record.version]) >= 0;
      if (record.state !== 'inflight' && isComplete) return { status: 204 };
      return {
        status: 200,
        headers: { 'Content-Type': 'text/event-stream; charset=utf-8', 'X-Accel-Buffering': 'no' },
        stream: (response) => send({ pawl, streams }, response, record.callId, lastPosition),
      };
    },
  }),
];

function send(
  { pawl, streams }: EventRouteDeps,
  response: Response,
  callId: string,
  lastPosition: Position | undefined,
): void {
  if (response.req.method === 'HEAD') {
    response.end();
    return;
  }
  response.write(`retry: ${RECONNECT_MS}\n\n`);
  // A long event is written in pieces, so later events wait behind it. Nothing may be written after the end of the response: a slow
  // client can delay that end, and a later write would crash this process.
  let pendingWrites = Promise.resolve();
  let ended = false;
  const write = (step: () => unknown) => {
    if (!ended) pendingWrites = pendingWrites.then(async () => void (await step()));
  };
  const end = () => {
    write(() => response.end());
    ended = true;
  };
  const stopFollowing = pawl.follow(
    callId,
    {
      onEvents(events) {
        // The limit counts only the unread bytes of earlier events.
        if (response.writableLength > MAX_UNREAD_BYTES) response.destroy();
        write(() => writeEvents(response, events));
      },
      onEnd: end,
    },
    lastPosition,
  );
  const keepAlive = setInterval(() => write(() => response.write(': still here\n\n')), KEEP_ALIVE_MS);
  const removeStream = streams.add(end);
  response.once('close', () => {
    clearInterval(keepAlive);
    removeStream();
    stopFollowing();
  });
}

async function writeEvents(response: Response, events: readonly CallEvent[]): Promise<void> {
  for (const { type, position, data } of events) {
    response.write(`id: ${formatPosition(position)}\nevent: ${type}\ndata: `);
    if (!isLong(data)) response.write(JSON.stringify(data));
    else
      for await (const piece of longJsonPieces(data)) {
        if (response.destroyed) return;
        response.write(piece);
      }
    response.write('\n\n');
  }
}
