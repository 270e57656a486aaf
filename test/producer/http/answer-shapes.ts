/** Holds every answer of the API to the shape that `/openapi.json` describes for it, with no field more. */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { z } from 'zod';
import { responseSchemas } from '../../../src/producer/http/core/response-schemas.ts';
import { ROUTES } from '../../../src/producer/http/route-table.ts';
import { contractSchemas } from '../../../src/shared/calls/envelope.ts';

const ajv = new Ajv2020({ strict: false, allErrors: true });
const schemas = {
  ToolResultEnvelope: contractSchemas().toolResultEnvelope,
  ...Object.fromEntries(
    // As it is given: what is not described is refused.
    Object.entries(responseSchemas).map(([name, schema]) => [name, z.toJSONSchema(schema, { io: 'output' })]),
  ),
};
ajv.addSchema({ $id: 'api', components: { schemas } });

const routes = ROUTES.map(({ method, path, responses }) => ({
  method: method.toUpperCase(),
  pattern: new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+').replaceAll('.', '\\.')}(?:\\?.*)?$`),
  responses,
}));

const validators = new Map<string, ValidateFunction>();

function validatorOf(shape: string): ValidateFunction {
  const known = validators.get(shape);
  if (known !== undefined) return known;
  const made = ajv.compile({ $ref: `api#/components/schemas/${shape}` });
  validators.set(shape, made);
  return made;
}

/** Throws when an answer is not what is described. */
export function checkShape(method: string, path: string, status: number, body: unknown): void {
  // In the form of the service whose buttons these are.
  if (path === '/v1/approvals/actions') return;
  const asked = routes.find((route) => route.method === method && route.pattern.test(path));
  const described = asked?.responses[status];
  if (described === undefined || typeof described === 'string') return;
  const [, shape] = described;
  const validate = validatorOf(shape);
  if (validate(body)) return;
  const faults = validate.errors?.map(
    ({ instancePath, message, params }) => `${instancePath} ${message} ${JSON.stringify(params)}`,
  );
  throw new Error(`${method} ${path} answered what is no ${shape}: ${faults?.join('; ')}`);
}
