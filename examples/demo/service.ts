/**
 * A real HTTP service on this machine, which the demo's tools depend on: it can fail a few times, be down, or hold an answer
 * back until the demo has done something in the meantime.
 */
import { createServer, type Server } from 'node:http';

export interface Hold {
  /** Resolves when a request waits for its response. */
  readonly arrived: Promise<void>;
  /** Lets that request, and all later ones, be answered. */
  release(): void;
}

interface Gate {
  readonly path: string;
  readonly arrive: () => void;
  readonly open: Promise<void>;
}

export class Service {
  readonly #server: Server;
  readonly #requests: string[] = [];
  readonly #index = new Set<string>();
  readonly #gates = new Set<Gate>();
  #priceFailures = 0;
  #stockIsDown = false;

  static async open(): Promise<Service> {
    const server = createServer();
    const service = new Service(server);
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(0, '127.0.0.1', resolve);
    });
    return service;
  }

  private constructor(server: Server) {
    this.#server = server;
    server.on('request', (request, response) => {
      const path = request.url ?? '/';
      this.#requests.push(path);
      request.resume();
      this.#pass(path)
        .then(() => {
          const { status, body } = this.#answer(path);
          response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
        })
        .catch(() => response.destroy());
    });
  }

  get host(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('The service does not listen.');
    return `127.0.0.1:${address.port}`;
  }

  get url(): string {
    return `http://${this.host}`;
  }

  /** The documents of the search index, sorted. */
  get indexed(): readonly string[] {
    return [...this.#index].sort();
  }

  /** The number of requests whose paths begin with this prefix. */
  count(prefix: string): number {
    return this.#requests.filter((path) => path.startsWith(prefix)).length;
  }

  failPrices(times: number): void {
    this.#priceFailures = times;
  }

  setStockDown(isDown: boolean): void {
    this.#stockIsDown = isDown;
  }

  /** Delays the responses of a path until they are released. */
  hold(path: string): Hold {
    const arrived = Promise.withResolvers<void>();
    const open = Promise.withResolvers<void>();
    const gate: Gate = { path, arrive: arrived.resolve, open: open.promise };
    this.#gates.add(gate);
    const release = () => {
      this.#gates.delete(gate);
      open.resolve();
    };
    return { arrived: arrived.promise, release };
  }

  async #pass(path: string): Promise<void> {
    for (const gate of this.#gates) {
      if (gate.path !== path) continue;
      gate.arrive();
      await gate.open;
    }
  }

  #answer(path: string): { readonly status: number; readonly body: object } {
    const [, kind, name = ''] = path.split('/');
    switch (kind) {
      case 'price':
        if (this.#priceFailures === 0) return { status: 200, body: { price: 19.9 } };
        this.#priceFailures -= 1;
        return { status: 503, body: { error: 'busy' } };
      case 'stock':
        return this.#stockIsDown ? { status: 503, body: { error: 'down' } } : { status: 200, body: { stock: 42 } };
      case 'index':
        this.#index.add(name);
        return { status: 200, body: {} };
      case 'receipts':
        return { status: 200, body: { receipt: `R-${name}` } };
      default:
        return { status: 404, body: {} };
    }
  }

  async close(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }
}
