/** Rewrites the HTTP responses of MCP servers into a form that the SDK can parse. */
import type { JSONRPCMessage, RequestId } from '@modelcontextprotocol/client';
import type { PawlError } from '../../../shared/errors/failure.ts';
import { orUndefined } from '../../../shared/util/or-undefined.ts';
import { readErrorPage } from '../../../shared/util/read-body.ts';
import { isBrokenAnswer, isUnaddressed, messagesIn, notMessage, parseMessage } from './incoming.ts';
import { MAX_MESSAGE_BYTES } from './stdio.ts';

interface ResponseOptions {
  readonly server: string;
  /** The request that the response answers: an answer without an ID is its own. */
  readonly request: RequestId | undefined;
  /** Called for an answer that is no message. */
  onBroken(fault: PawlError): void;
}

/** Returns the same response with its valid messages alone. */
export function readableResponse(response: Response, { server, request, onBroken }: ResponseOptions): Response {
  if (response.body === null) return response;
  if (!response.ok) {
    const text = async () => Buffer.from(await readErrorPage(response, MAX_MESSAGE_BYTES)).toString();
    return Object.defineProperty(response, 'text', { value: text });
  }
  // A server that does not label its answer, or as something else, has run its tool all the same.
  if (request !== undefined && !/^text\/event-stream\b/i.test(response.headers.get('content-type') ?? ''))
    response.headers.set('content-type', 'application/json');
  const type = (response.headers.get('content-type') ?? '').toLowerCase();
  const parseMessages = (value: unknown) => {
    const { messages, invalid } = messagesIn(value);
    for (const entry of [...invalid, ...messages.filter(isUnaddressed)])
      if (isBrokenAnswer(entry)) onBroken(notMessage(server, entry));
    return { messages, invalid };
  };
  if (type.startsWith('text/event-stream')) {
    const body = response.body
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(events((data) => parseMessages(data).messages));
    return Object.defineProperty(response, 'body', { value: body.pipeThrough(new TextEncoderStream()) });
  }
  if (!type.startsWith('application/json')) return response;
  const json = async () => {
    const text = await response.text();
    let value: unknown;
    try {
      ({ value } = parseMessage(text));
    } catch {
      throw notMessage(server, text);
    }
    if (request !== undefined && isBrokenAnswer(value) && isUnaddressed(value))
      Object.assign(value as object, { id: request });
    const { messages, invalid } = parseMessages(value);
    if (messages.length === 0 && invalid.length > 0) throw notMessage(server, invalid[0]);
    return messages;
  };
  return Object.defineProperty(response, 'json', { value: json });
}

const isNamed = (line: string) => line.startsWith('event:') && line.slice('event:'.length).trim() !== 'message';

/** Splits server-sent events so that each message gets an event of its own. Data that is not JSON passes unchanged. */
function events(messagesOf: (data: unknown) => readonly JSONRPCMessage[]): TransformStream<string, string> {
  let chunks: string[] = [];
  let tail = '';
  const splitEvent = (event: string): string => {
    const lines = event.split(/\r\n|\n|\r/);
    // The SDK would wait for what follows a carriage return.
    const plain = lines.join('\n');
    const isData = (line: string) => line === 'data' || line.startsWith('data:');
    const data = lines.filter(isData);
    // Some servers write the message alone, as if the stream were JSON.
    const text = data.length === 0 ? plain : data.map((line) => line.slice('data:'.length)).join('\n');
    const parsed = orUndefined(() => parseMessage(text));
    if (parsed === undefined) return plain;
    const messages = messagesOf(parsed.value);
    // The SDK ignores events of another name.
    const kept = data.length === 0 ? [] : lines.filter((line) => line !== '' && !isData(line) && !isNamed(line));
    const isUnchanged = data.length > 0 && !lines.some(isNamed) && parsed.isVerbatim;
    if (messages.length === 1 && messages[0] === parsed.value && isUnchanged) return plain;
    const [head, ...rest] = messages.map((message) => `data: ${JSON.stringify(message)}`);
    if (head === undefined) return plain;
    const first = [...kept, head];
    return [first.join('\n'), ...rest].map((eventText) => `${eventText}\n\n`).join('');
  };
  return new TransformStream({
    transform(chunk, controller) {
      // Only the end of the text seen before is kept, so that a large event is not scanned again for each of its
      // chunks.
      const scanned = `${tail}${chunk}`;
      chunks.push(chunk);
      const ends = [...scanned.matchAll(/\n\r?\n|\r\r/g)].map(({ 0: mark, index }) => index + mark.length);
      tail = scanned.slice(-3);
      if (ends.length === 0) return;
      const text = chunks.join('');
      const offset = text.length - scanned.length;
      let start = 0;
      for (const end of ends) {
        controller.enqueue(splitEvent(text.slice(start, offset + end)));
        start = offset + end;
      }
      const rest = text.slice(start);
      chunks = [rest];
      tail = rest.slice(-3);
    },
    flush(controller) {
      // A stream may end without the empty line behind its last event. A part of a message is no event, with the line or without.
      const rest = chunks.join('');
      controller.enqueue(/\}\s*$/.test(rest) ? splitEvent(`${rest.trimEnd()}\n\n`) : rest);
    },
  });
}
