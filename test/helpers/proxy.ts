/**
 * A wire to Redis that can be cut, made slow to answer, or go silent: a TCP port in front of the server's Unix socket or
 * port. TCP delivers in order or not at all, so a silent connection keeps what it was given, and never skips a part.
 */
import { connect, createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

export interface Wire extends AsyncDisposable {
  /** `redis://127.0.0.1:…` */
  readonly url: string;
  /** Breaks every connection, and refuses new ones until `heal`. */
  cut(): void;
  /** Refuses new connections until `heal`; open ones stay. */
  refuse(): void;
  /** Takes back `cut`, `refuse` and `deafenWhenSaid` for connections to come. */
  heal(): void;
  /**
   * Open connections pass nothing any more, and nobody is told: a half-open wire. New ones work.
   * `only` picks those whose client said this text, for example its connection name. Returns how many went silent.
   */
  silence(options?: { readonly only?: string }): number;
  /** From the moment a client says this text, that one hears no answers any more; what it says still arrives. */
  deafenWhenSaid(text: string): void;
  /** Once: when a client says this text, Redis does it, and the connection breaks in place of the answer. Resolves then. */
  loseAnswerTo(text: string): Promise<void>;
  /** Breaks every connection; those to come lead to another server. */
  leadTo(redisUrl: string): void;
  /** How many connections are open, the silent ones included. */
  readonly open: number;
}

interface Link {
  readonly client: Socket;
  readonly server: Socket;
  /** What the client said first: names and handshake. */
  said: string;
}

const REMEMBERED_CHARACTERS = 4_096;

/** Inside a test, the wire is taken down when the test ends. */
export async function startWire(redisUrl: string): Promise<Wire> {
  const links = new Set<Link>();
  let whole = true;
  let target = redisUrl;
  let deafening: string | undefined;
  let losing: { readonly text: string; readonly done: () => void } | undefined;
  const listener = createServer((client) => {
    if (!whole) {
      client.destroy();
      return;
    }
    const link: Link = { client, server: connectTo(target), said: '' };
    links.add(link);
    client.on('data', (bytes) => {
      const text = bytes.toString('latin1');
      if (link.said.length < REMEMBERED_CHARACTERS) link.said += text;
      if (deafening !== undefined && text.includes(deafening)) stop(link.server, client);
      if (losing === undefined || !text.includes(losing.text)) return;
      const { done } = losing;
      losing = undefined;
      link.server.unpipe(client);
      link.server.once('data', () => {
        client.resetAndDestroy();
        link.server.destroy();
        done();
      });
      link.server.resume();
    });
    client.pipe(link.server);
    link.server.pipe(client);
    for (const [one, other] of [
      [client, link.server],
      [link.server, client],
    ] as const) {
      one.on('error', () => {});
      one.on('close', () => {
        other.destroy();
        links.delete(link);
      });
    }
  });
  await new Promise<void>((listening) => listener.listen(0, '127.0.0.1', listening));
  const address = listener.address();
  if (address === null || typeof address === 'string') throw new Error('the wire has no port');
  const cutAll = () => {
    for (const { client, server } of links) {
      client.resetAndDestroy();
      server.destroy();
    }
  };
  let disposed: Promise<void> | undefined;
  const dispose = () => {
    disposed ??= new Promise((closed) => {
      listener.close(() => closed());
      cutAll();
    });
    return disposed;
  };
  try {
    onTestFinished(dispose);
  } catch {
    // Not inside a test: whoever made it disposes of it.
  }
  return {
    url: `redis://127.0.0.1:${address.port}`,
    cut: () => {
      whole = false;
      cutAll();
    },
    refuse: () => {
      whole = false;
    },
    heal: () => {
      whole = true;
      deafening = undefined;
    },
    silence: ({ only = '' } = {}) => {
      const chosen = [...links].filter((link) => link.said.includes(only));
      for (const { client, server } of chosen) {
        stop(server, client);
        stop(client, server);
      }
      return chosen.length;
    },
    deafenWhenSaid: (text) => {
      deafening = text;
    },
    loseAnswerTo: (text) =>
      new Promise((done) => {
        losing = { text, done };
      }),
    leadTo: (url) => {
      target = url;
      cutAll();
    },
    get open() {
      return links.size;
    },
    [Symbol.asyncDispose]: dispose,
  };
}

/** Nothing flows from one to the other any more, and neither notices. */
function stop(from: Socket, to: Socket): void {
  from.unpipe(to);
  from.pause();
}

function connectTo(redisUrl: string): Socket {
  const { protocol, pathname, hostname, port } = new URL(redisUrl);
  return protocol === 'redis:'
    ? connect(port === '' ? 6_379 : Number(port), hostname)
    : connect(decodeURIComponent(pathname));
}
