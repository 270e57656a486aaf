/**
 * A route as a value: the schemas of its request, its permission, and one function from a checked request to a response. This module
 * does the rest, from the token to the written response.
 */
import express, { type Express, type NextFunction, type Request, type RequestHandler, type Response } from 'express';
import { z } from 'zod';
import { invalidInput, reasonOf } from '../../../shared/errors/failure.ts';
import { redact } from '../../../shared/errors/redaction.ts';
import { WITH_RECEIVED, zodIssues } from '../../../shared/schema/zod-issues.ts';
import type { Logger } from '../../../shared/telemetry/log.ts';
import { readExactJson } from '../../../shared/util/json/exact-json.ts';
import { isLong } from '../../../shared/util/json/json-stream.ts';
import type { Pawl } from '../../client.ts';
import type { FleetView } from '../../operations/fleet-metrics.ts';
import { type Caller, checkPermission, type Permission } from './access.ts';
import { HttpError, invalidBody, toHttpRefusal } from './errors.ts';
import type { LongPolls } from './long-poll.ts';
import type { ResponseName } from './response-schemas.ts';
import { longJsonPieces, type OpenStreams, sendPieces } from './stream-response.ts';

export interface ApiDeps {
  readonly pawl: Pawl;
  readonly longPolls: LongPolls;
  readonly fleet: FleetView;
  readonly streams: OpenStreams;
  /** Throws `BACKEND_UNAVAILABLE` or `RATE_LIMITED` while the server accepts no calls. */
  checkAccepting(): Promise<void>;
}

/** Parameters may have 4 MiB; the other 64 KiB are for the envelope around them. */
export const MAX_BODY_BYTES = 4 * 1_024 * 1_024 + 64 * 1_024;
/** Deeper JSON is refused before any recursive function reads it. */
const MAX_DEPTH = 140;

type Method = 'get' | 'post' | 'put' | 'patch' | 'delete';

/** A request whose query, headers and body have been checked, and what the server has for its routes. */
export interface RouteRequest<Query = unknown, Body = unknown, Headers = unknown, PathName extends string = string>
  extends ApiDeps {
  /** Named parts of the path, decoded. */
  readonly path: Readonly<Record<PathName, string>>;
  readonly query: Query;
  /** The headers that the route declares, by their names in lower case. */
  readonly headers: Headers;
  readonly body: Body;
  readonly caller: Caller;
  /** Calls the listener once if the client disconnects before its response. */
  onDisconnect(listener: () => void): void;
}

export interface RouteResponse {
  readonly status: number;
  /** An object is written as JSON, text as it is; absent for 204. */
  readonly body?: object | string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Replaces the body: writes the response piece by piece, and ends it. */
  readonly stream?: (response: Response) => void;
}

/** The responses of a route by status, without refusals: their meaning, and the name of their JSON schema or the type of their text. */
type RouteResponses = Readonly<
  Record<number, string | readonly [meaning: string, shape: ResponseName | `text/${string}`]>
>;

/** A route without the types of its query and body. */
export interface Route {
  readonly method: Method;
  /** The path with parameters as `{name}`, as in OpenAPI. */
  readonly path: string;
  /** The name of the operation in generated clients. */
  readonly operationId: string;
  readonly permission: Permission;
  /** The route needs no token: its path has a capability instead. */
  readonly isOpen?: boolean;
  readonly summary: string;
  readonly query: z.ZodType;
  /** The schema of the headers that the route uses, named in lower case. Other headers are ignored. */
  readonly headers: z.ZodType;
  readonly body: z.ZodType | undefined;
  /** The body's JSON Schema, where it cannot be derived from `body`. */
  readonly bodySchema?: object;
  readonly responses: RouteResponses;
  handle(request: RouteRequest): Promise<RouteResponse> | RouteResponse;
}

const NO_QUERY = z.strictObject({});
const NO_HEADERS = z.object({});

type Answer<Checked> = (request: Checked) => Promise<object> | Promise<void> | object;

/** `answer` returns the body of the route's first response, `handle` any response. A response 204 has no body. */
type Handler<Checked> =
  | { handle(request: Checked): Promise<RouteResponse> | RouteResponse; readonly answer?: never }
  | { readonly answer: Answer<Checked>; readonly handle?: never };

/** The names in the path of a route: `id` for `get /v1/plans/{id}`. */
type PathNames<Address extends string> = Address extends `${string}{${infer Name}}${infer Rest}`
  ? Name | PathNames<Rest>
  : never;

/** Defines a route, such as `get /v1/calls`, whose handler is typed by the route's path and schemas. */
export function route<
  const Address extends `${Method} /${string}`,
  Query extends z.ZodType = typeof NO_QUERY,
  Body extends z.ZodType = z.ZodType,
  Headers extends z.ZodType = typeof NO_HEADERS,
>(
  address: Address,
  spec: Omit<Route, 'method' | 'path' | 'query' | 'headers' | 'body' | 'handle'> & {
    readonly query?: Query;
    readonly headers?: Headers;
    readonly body?: Body;
  } & Handler<RouteRequest<z.output<Query>, z.output<Body>, z.output<Headers>, PathNames<Address>>>,
): Route {
  const [method, path] = address.split(' ') as [Method, string];
  const { handle, answer } = spec as Partial<{ handle: Route['handle']; answer: Answer<RouteRequest> }>;
  const status = Number(Object.keys(spec.responses)[0]);
  return {
    ...spec,
    method,
    path,
    query: spec.query ?? NO_QUERY,
    headers: spec.headers ?? NO_HEADERS,
    body: spec.body,
    handle:
      handle ??
      (async (request) => {
        const body = (await answer?.(request)) ?? {};
        return status === 204 ? { status } : { status, body };
      }),
  };
}

export const queryNumber = ({ fallback, ...bounds }: QueryBounds & { readonly fallback: number }) =>
  numberSchema(bounds)
    .default(fallback)
    .meta(numberMeta({ ...bounds, fallback }));

/** A query number whose default depends on the rest of the request. */
export const optionalQueryNumber = (bounds: QueryBounds & { readonly fallback: number | string }) =>
  numberSchema(bounds).optional().meta(numberMeta(bounds));

interface QueryBounds {
  readonly max: number;
  readonly unit: string;
}

const numberSchema = ({ max, unit }: QueryBounds) =>
  z
    .string()
    .regex(/^\d{1,12}$/, `must be a whole number of ${unit}`)
    .transform((text) => Math.min(Number(text), max));

/** The description has an integer, although the query arrives as text. */
const numberMeta = ({ max, unit, fallback }: QueryBounds & { readonly fallback: number | string }) => ({
  type: 'integer' as const,
  pattern: undefined,
  minimum: 0,
  description: `${unit}; default: ${fallback}; larger values count as ${max}.`,
});

/** Mounts routes, and refuses the other methods of their paths. */
export function mountRoutes(app: Express, routes: readonly Route[], deps: ApiDeps): void {
  const readBody = bodyReader();
  for (const [path, pathRoutes] of Map.groupBy(routes, (each) => each.path)) {
    const endpoint = app.route(path.replaceAll(/\{(\w+)\}/g, ':$1'));
    for (const each of pathRoutes) {
      const steps: RequestHandler[] = [permissionCheck(each.permission)];
      if (each.body !== undefined) steps.push(...readBody);
      endpoint[each.method](...steps, requestHandler(each, deps));
    }
    endpoint.all(
      refuseMethod(pathRoutes.flatMap(({ method }) => (method === 'get' ? ['GET', 'HEAD'] : [method.toUpperCase()]))),
    );
  }
}

export function permissionCheck(permission: Permission): RequestHandler {
  return (_request, response, next) => {
    checkPermission(callerOf(response), permission);
    next();
  };
}

export function callerOf(response: Response): Caller {
  return (response.locals as { caller: Caller }).caller;
}

export function refuseMethod(allowed: readonly string[]): RequestHandler {
  return (request) => {
    throw new HttpError(
      'METHOD_NOT_ALLOWED',
      `${request.method} is not possible here. Allowed: ${allowed.join(', ')}.`,
      {
        headers: { Allow: allowed.join(', ') },
      },
    );
  };
}

function bodyReader(): RequestHandler[] {
  const checkType: RequestHandler = (request, _response, next) => {
    const { 'content-length': length, 'transfer-encoding': encoding } = request.headers;
    // A page of another origin can send text, but not JSON, without a preflight request.
    if ((encoding !== undefined || (length !== undefined && length !== '0')) && !request.is('application/json'))
      throw new HttpError('UNSUPPORTED_MEDIA_TYPE', 'The body must be JSON: Content-Type: application/json.');
    next();
  };
  return [checkType, ...jsonBody(MAX_BODY_BYTES)];
}

/** Reads a JSON body exactly as it was sent. */
export function jsonBody(limit: number | string): RequestHandler[] {
  const type = 'application/json';
  const parse: RequestHandler = (request, _response, next) => {
    const { body } = request as { readonly body?: unknown };
    if (!Buffer.isBuffer(body)) return next();
    const [, charset = 'utf-8'] = /;\s*charset\s*=\s*"?([^\s;"]+)/i.exec(request.headers['content-type'] ?? '') ?? [];
    if (!/^utf-?8$/i.test(charset)) throw new HttpError('UNSUPPORTED_MEDIA_TYPE', 'The body must be JSON in UTF-8.');
    // An empty body counts as an empty object.
    const read = readExactJson(body.length === 0 ? '{}' : body);
    if (read.kind === 'problem') throw invalidBody(read.problem);
    if (typeof read.value !== 'object' || read.value === null) throw invalidBody('is no JSON object');
    request.body = read.value;
    next();
  };
  return [express.raw({ type, limit }), parse];
}

function requestHandler(each: Route, deps: ApiDeps): RequestHandler {
  return async (request, response) => {
    const checkedRequest: RouteRequest = {
      ...deps,
      path: request.params as Record<string, string>,
      query: validate(each.query, request.query, 'query'),
      headers: validate(each.headers, request.headers, 'headers'),
      body: each.body === undefined ? undefined : validate(each.body, requireBody(request), 'body'),
      caller: callerOf(response),
      onDisconnect: (listener) => void response.once('close', listener),
    };
    writeResponse(response, await each.handle(checkedRequest));
  };
}

function requireBody(request: Request): unknown {
  const body: unknown = request.body;
  if (body === undefined) throw invalidBody('is missing; a JSON object is expected');
  if (isTooDeep(body)) throw invalidBody(`is nested more than ${MAX_DEPTH} levels deep`);
  return body;
}

function isTooDeep(value: unknown): boolean {
  let level = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > MAX_DEPTH) return true;
    const children: unknown[] = [];
    for (const container of level) {
      if (typeof container !== 'object' || container === null) continue;
      for (const member of Object.values(container))
        if (typeof member === 'object' && member !== null) children.push(member);
    }
    level = children;
  }
  return false;
}

function validate(schema: z.ZodType, value: unknown, part: 'query' | 'headers' | 'body'): unknown {
  // The query that Express parses has no prototype, and zod does not accept it as an object.
  const parsed = schema.safeParse(part === 'body' ? value : { ...(value as object) }, WITH_RECEIVED);
  if (parsed.success) return parsed.data;
  const verb = part === 'headers' ? 'are' : 'is';
  throw invalidInput(`The ${part} ${verb} not usable`, zodIssues(parsed.error), `the ${part}`);
}

function writeResponse(response: Response, { status, body, headers = {}, stream }: RouteResponse): void {
  if (response.closed || response.headersSent) return;
  response.status(status).set(headers);
  if (stream !== undefined) stream(response);
  else if (typeof body !== 'object') response.end(body);
  else if (!isLong(body)) response.json(body);
  else sendPieces(response.type('json'), longJsonPieces(body));
}

/** Turns an error of a route or of the body parser into a refusal, and logs defects. */
export function errorHandler(log: Logger) {
  return (thrown: unknown, request: Request, response: Response, _next: NextFunction): void => {
    const { status, headers, body, defect } = toHttpRefusal(thrown);
    if (defect) {
      const stack = thrown instanceof Error ? thrown.stack : String(thrown);
      log.error(
        { event: 'http_defect', method: request.method, path: redact(request.path), stack },
        'a request failed',
      );
    } else if (status === 503) {
      const error = reasonOf(thrown);
      log.warn(
        { event: 'http_unavailable', method: request.method, path: redact(request.path), error },
        'a request was refused',
      );
    }
    if (response.headersSent) response.destroy();
    else writeResponse(response, { status, headers, body });
  };
}
