/**
 * `PAWL_METRICS_PORT`: the endpoint of one process for its supervisor: `/metrics`, `/healthz`, `/readyz`. It needs no token, so it
 * listens on loopback unless `PAWL_METRICS_HOST` says otherwise.
 */
import type { AddressInfo } from 'node:net';
import type { HealthOptions } from '../../producer/http/routes/health.ts';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError, reasonOf } from '../../shared/errors/failure.ts';
import type { Watchdog } from './watchdog.ts';

export interface ProcessEndpoint {
  readonly port: number;
  /** Reports the state of this process from now on. Until then `/readyz` answers 503: starting. */
  watch(watched: WatchedProcess): void;
  close(): Promise<void>;
}

interface WatchedProcess extends HealthOptions {
  metrics(): Promise<{ readonly contentType: string; readonly text: string }>;
}

/**
 * Opens the endpoint; undefined without a port in the settings. Throws `CONFIGURATION` when the port is taken, so it is called before the
 * process takes calls. A `watchdog` answers for a process whose event loop is blocked.
 */
export async function openProcessEndpoint(
  { metricsPort, metricsHost }: Pick<Settings, 'metricsPort' | 'metricsHost'>,
  watchdog?: Pick<Watchdog, 'listen'>,
): Promise<ProcessEndpoint | undefined> {
  if (metricsPort === undefined) return undefined;
  // Without a port, these libraries are not loaded, so that the process starts sooner.
  const { default: express } = await import('express');
  const { collectDefaultMetrics, Registry } = await import('prom-client');
  const { mountHealth } = await import('../../producer/http/routes/health.ts');
  const app = express().disable('x-powered-by');
  let isWatched = false;
  app.use((_request, response, next) => {
    if (isWatched) next();
    else response.status(503).set('Retry-After', '1').json({ status: 'not ready', reason: 'starting' });
  });
  // Metrics of the process itself: event loop, memory, processor, descriptors.
  const nodeMetrics = new Registry();
  collectDefaultMetrics({ register: nodeMetrics });
  const { promise: listening, resolve, reject } = Promise.withResolvers<void>();
  const binding = watchdog === undefined ? ([metricsPort, metricsHost] as const) : ([0, '127.0.0.1'] as const);
  const server = app.listen(...binding, (error) => (error === undefined ? resolve() : reject(error)));
  let port: number;
  try {
    await listening;
    const mainPort = (server.address() as AddressInfo).port;
    port = (await watchdog?.listen({ host: metricsHost, port: metricsPort, mainPort })) ?? mainPort;
  } catch (error) {
    server.close();
    const host = metricsHost.includes(':') ? `[${metricsHost}]` : metricsHost;
    throw new PawlError(
      'CONFIGURATION',
      `PAWL_METRICS_PORT: ${host}:${metricsPort} cannot be used: ${reasonOf(error)}`,
      { cause: error },
    );
  }
  return {
    port,
    watch: (watched) => {
      mountHealth(app, watched);
      app.get('/metrics', async (_request, response) => {
        const { contentType, text } = await watched.metrics();
        response.type(contentType).send(text + (await nodeMetrics.metrics()));
      });
      isWatched = true;
    },
    close: () =>
      new Promise((closed) => {
        server.close(() => closed());
        server.closeAllConnections();
      }),
  };
}
