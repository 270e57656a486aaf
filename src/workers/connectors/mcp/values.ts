/** Resolves values of a declared server's environment and headers that refer to the worker's environment. */
import type { Environment } from '../../../shared/config/variables.ts';
import type { McpValue } from '../../../shared/connectors/mcp-routing.ts';
import { PawlError } from '../../../shared/errors/failure.ts';

/** The worker's own secrets. The author of a server declaration must not read them through it. */
const WORKER_VARIABLES = /^(?:PAWL_|REDIS_|OTEL_)/;

/** Throws `CONFIGURATION` for a variable that this worker does not have, or does not pass on. */
export function resolveValues(
  values: Readonly<Record<string, McpValue>>,
  environment: Environment,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [
      name,
      typeof value === 'string' ? value : requiredVariable(name, value.env, environment),
    ]),
  );
}

function requiredVariable(name: string, variable: string, environment: Environment): string {
  if (WORKER_VARIABLES.test(variable))
    throw new PawlError(
      'CONFIGURATION',
      `${name}: the worker's own variable ${variable} is not passed to MCP servers.`,
    );
  const value = environment[variable];
  if (value === undefined || value === '')
    throw new PawlError('CONFIGURATION', `${name}: this worker has no environment variable ${variable}.`);
  return value;
}
