/**
 * Resource locks. Calls that change the same resource run one at a time, in the order of their requests. Calls that only read it run side
 * by side until one that changes it is waiting. `store/limits` records holders and waiters.
 */
import { ToolError } from '../errors/failure.ts';
import { canonicalJson, digest } from '../schema/canonical-json.ts';
import { type AnyTool, isMutating, qualifiedName } from '../tools/tool.ts';
import { describeValue } from '../tools/tool-answers.ts';

export interface ResourceLock {
  /** The name of the resource within the fleet. */
  readonly resource: string;
  readonly mode: ResourceLockMode;
}

export type ResourceLockMode = 'exclusive' | 'shared';

/** Whether calls of the tool may have to wait for others. */
export function needsResourceLock(tool: AnyTool): boolean {
  return tool.resource !== undefined || !tool.parallel;
}

/**
 * The lock that a call needs; undefined for none. Each call of a tool that is not `parallel` has its resource to itself; without a
 * `resource`, the calls of one session share one lock. Resources belong to a tenant. Throws what the tool's functions throw, and a
 * `ToolError` for a resource that is not a name.
 */
export function requiredLock(
  tool: AnyTool,
  params: unknown,
  session: { readonly tenantId?: string | undefined; readonly sessionKey: string },
): ResourceLock | undefined {
  const name: unknown = tool.resource?.(params);
  if (name !== undefined && (typeof name !== 'string' || name === ''))
    throw new ToolError(
      `resource of ${tool.name} must return a name or undefined; it returned ${describeValue(name)}`,
      {
        code: 'RESOURCE_INVALID',
        nothingHappened: true,
      },
    );
  if (name === undefined && tool.parallel) return undefined;
  const nameParts = name === undefined ? ['session', session.sessionKey, qualifiedName(tool)] : ['resource', name];
  return {
    resource: digest(canonicalJson([session.tenantId ?? null, ...nameParts])),
    mode: !tool.parallel || isMutating(tool, params) ? 'exclusive' : 'shared',
  };
}
