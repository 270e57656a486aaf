/** `/openapi.json`: the description of the routes, generated from the schemas that check their requests. */
import { z } from 'zod';
import { contractSchemas } from '../../../shared/calls/envelope.ts';
import { PAWL_VERSION } from '../../../shared/store/redis/own-files.ts';
import { issues, text } from './call-schemas.ts';
import { REQUEST_ERROR_CODES } from './errors.ts';
import { responseSchemas } from './response-schemas.ts';
import { type Route, route } from './route.ts';

const errorBody = z.object({
  error: z.object({
    code: z.enum(REQUEST_ERROR_CODES),
    message: text,
    issues: issues.optional(),
    suggestions: z.array(text).optional(),
    callId: text.optional(),
  }),
});

/** `listRoutes` gives all routes, this one included. */
export function openApiRoute(listRoutes: () => readonly Route[]): Route {
  let described: object | undefined;
  return route('get /openapi.json', {
    operationId: 'getDescription',
    permission: 'read',
    summary: 'This description.',
    responses: { 200: ['An OpenAPI document', 'Description'] },
    answer() {
      described ??= describe(listRoutes());
      const description = "Runs an AI agent's tool calls on a fleet of workers, each call once.";
      return { openapi: '3.1.0', info: { title: 'Pawl', version: PAWL_VERSION, description }, ...described };
    },
  });
}

function describe(routes: readonly Route[]): object {
  return {
    security: [{ token: [] }],
    paths: Object.fromEntries(
      [...Map.groupBy(routes, ({ path }) => path)].map(([path, pathRoutes]) => [
        path,
        Object.fromEntries(pathRoutes.map((each) => [each.method, operation(each)])),
      ]),
    ),
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
      schemas: {
        ToolResultEnvelope: contractSchemas().toolResultEnvelope,
        // The input schemas describe responses, because they allow further fields.
        ...Object.fromEntries(Object.entries(responseSchemas).map(([name, schema]) => [name, componentSchema(schema)])),
        Error: componentSchema(errorBody),
      },
    },
  };
}

/** The JSON Schema of a schema's input. `readOnly` is removed: in OpenAPI it means that a client must not send the field. */
function componentSchema(schema: z.ZodType) {
  const { $schema: _, ...described } = z.toJSONSchema(schema, {
    io: 'input',
    override: ({ jsonSchema }) => void delete jsonSchema.readOnly,
  });
  return described;
}

function operation(each: Route): object {
  return {
    operationId: each.operationId,
    summary: each.summary,
    ...(each.isOpen === true ? { security: [] } : {}),
    parameters: [
      ...pathParameters(each.path),
      ...parameters(each.query, 'query'),
      ...parameters(each.headers, 'header'),
    ],
    ...(each.body !== undefined && {
      requestBody: {
        required: true,
        content: { 'application/json': { schema: each.bodySchema ?? componentSchema(each.body) } },
      },
    }),
    responses: {
      ...Object.fromEntries(
        Object.entries(each.responses).map(([status, response]) => [status, describeResponse(response)]),
      ),
      default: {
        description: 'A refusal',
        headers: {
          'Retry-After': { description: 'With 429 and 503: seconds until another try.', schema: { type: 'integer' } },
        },
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    },
  };
}

function describeResponse(response: Route['responses'][number]): object {
  if (typeof response === 'string') return { description: response };
  const [description, shape] = response;
  if (shape.startsWith('text/')) return { description, content: { [shape]: { schema: { type: 'string' } } } };
  return { description, content: { 'application/json': { schema: { $ref: `#/components/schemas/${shape}` } } } };
}

function pathParameters(path: string): object[] {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
  return names.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } }));
}

function parameters(schema: z.ZodType, location: 'query' | 'header'): object[] {
  const { properties = {}, required = [] } = componentSchema(schema);
  return Object.entries(properties).map(([name, described]) => ({
    name,
    in: location,
    required: required.includes(name),
    schema: described,
  }));
}
