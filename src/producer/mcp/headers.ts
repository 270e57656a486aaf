/**
 * Headers that repeat values of the body, so that routers need not read the body (SEP-2243). Both must agree. The SDK checks the headers
 * of the core methods; this module checks those of tasks and of a tool's own parameters (`x-mcp-header`).
 */
import { isObject } from '../../shared/util/json/json-types.ts';
import { orUndefined } from '../../shared/util/or-undefined.ts';

/** Other methods of this prefix are unknown, and are refused before headers are compared. */
const TASK_METHODS = ['tasks/get', 'tasks/update', 'tasks/cancel'];

interface Request {
  readonly method: string;
  readonly params?: Readonly<Record<string, unknown>> | undefined;
}

/** Describes the first header that disagrees with the body; undefined when all agree. `schemaOf` finds the input schema of a tool. */
export async function headerMismatch(
  { method, params = {} }: Request,
  headers: Headers,
  schemaOf: (tool: string) => Promise<unknown>,
): Promise<string | undefined> {
  if (TASK_METHODS.includes(method) && 'taskId' in params)
    return headers.get('mcp-name') === params['taskId'] ? undefined : 'Mcp-Name must be the taskId of the body';
  if (method !== 'tools/call' || typeof params['name'] !== 'string') return undefined;
  return propertyMismatch(await schemaOf(params['name']), params['arguments'], headers);
}

function propertyMismatch(schema: unknown, value: unknown, headers: Headers): string | undefined {
  const properties = isObject(schema) && isObject(schema['properties']) ? schema['properties'] : {};
  if (!isObject(value)) return undefined;
  for (const [name, property] of Object.entries(properties)) {
    const parameter = value[name];
    if (!isObject(property) || parameter === undefined || parameter === null) continue;
    const difference =
      typeof property['x-mcp-header'] === 'string'
        ? mismatch(`Mcp-Param-${property['x-mcp-header']}`, parameter, headers)
        : propertyMismatch(property, parameter, headers);
    if (difference !== undefined) return difference;
  }
  return undefined;
}

function mismatch(header: string, parameter: unknown, headers: Headers): string | undefined {
  if (typeof parameter === 'object') return undefined;
  const headerValue = headers.get(header);
  if (headerValue === null) return `${header} is missing, and the body has a value for it`;
  const decoded = decode(headerValue);
  if (decoded === undefined) return `${header} is not valid Base64 of UTF-8`;
  const isEqual =
    typeof parameter === 'number'
      ? decoded.trim() !== '' && Number(decoded) === parameter
      : decoded === String(parameter);
  return isEqual ? undefined : `${header} and the body have different values`;
}

/** Decodes `=?base64?…?=`, which carries values that a header cannot. Other values are taken as they are. */
function decode(value: string): string | undefined {
  const encoded = /^=\?base64\?(.*)\?=$/s.exec(value)?.[1];
  if (encoded === undefined) return value;
  const bytes = Buffer.from(encoded, 'base64');
  if (bytes.toString('base64') !== encoded) return undefined;
  return orUndefined(() => new TextDecoder('utf-8', { fatal: true }).decode(bytes));
}
