/** `POST /v1/completions/{token}`: an outside system completes a pending call. The token in the path is the only credential. */
import type { Express, RequestHandler } from 'express';
import { type Completion, completionJsonSchema } from '../../../shared/calls/completion.ts';
import { jsonObjectSchema } from '../../../shared/calls/envelope.ts';
import { type ApiDeps, mountRoutes, type Route, route } from '../core/route.ts';

const PATH = '/v1/completions';

export const completionRoutes: readonly Route[] = [
  route(`post ${PATH}/{token}`, {
    operationId: 'completeCall',
    permission: 'use',
    isOpen: true,
    summary:
      'Completes a pending call, once, with an output or an error; or reports its progress, or extends its expiry. Needs no other token.',
    body: jsonObjectSchema,
    bodySchema: completionJsonSchema,
    responses: { 200: ['Whether the call is completed or still waits', 'CompletionAnswer'] },
    handle: async ({ pawl, path, body }) => ({
      status: 200,
      // The body is checked where it is applied.
      body: await pawl.complete(path.token, body as unknown as Completion),
    }),
  }),
];

/** Mounts the routes before the authentication. `limit` bounds the requests of one address: it prevents guessing tokens by many tries. */
export function mountCompletions(app: Express, deps: ApiDeps, limit: RequestHandler): void {
  const setAnonymousCaller: RequestHandler = (request, response, next) => {
    response.locals['caller'] = { id: `completions ${request.socket.remoteAddress ?? ''}`, role: 'agent' };
    next();
  };
  app.use(PATH, setAnonymousCaller, limit);
  mountRoutes(app, completionRoutes, deps);
}
