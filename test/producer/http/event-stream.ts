/** Reads server-sent events as a client does: by ID, and again from where it was cut off. */
import { onTestFinished } from 'vitest';
import { eventually } from '../../helpers/signal.ts';

export interface SentEvent {
  readonly id: string;
  readonly type: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into events whose shape they state themselves.
  readonly data: any;
}

export interface EventStream {
  readonly status: number;
  readonly headers: Headers;
  readonly events: readonly SentEvent[];
  /** Resolves when the server ends the stream, or it is cut off. */
  readonly ended: Promise<void>;
  /** The first event of a type, past or to come. */
  until(type: string): Promise<SentEvent>;
  cut(): void;
}

export async function openEvents(url: string, lastEventId?: string, token?: string): Promise<EventStream> {
  const abort = new AbortController();
  onTestFinished(() => abort.abort());
  const response = await fetch(url, {
    signal: abort.signal,
    headers: {
      ...(lastEventId === undefined ? {} : { 'last-event-id': lastEventId }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
  });
  const events: SentEvent[] = [];
  const read = async () => {
    let rest = '';
    for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      const blocks = (rest + chunk).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) {
        const fields = new Map(block.split('\n').map((line) => line.split(/: (.*)/s) as [string, string]));
        const [id, type, data] = [fields.get('id'), fields.get('event'), fields.get('data')];
        if (id !== undefined && type !== undefined) events.push({ id, type, data: JSON.parse(data ?? 'null') });
      }
    }
  };
  return {
    status: response.status,
    headers: response.headers,
    events,
    ended: read().catch(() => {}),
    until: (type) => eventually(() => events.find((event) => event.type === type), { what: `the event ${type}` }),
    cut: () => abort.abort(),
  };
}
