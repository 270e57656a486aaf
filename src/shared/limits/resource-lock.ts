/**
 * Which calls take turns (C3): those that change the same resource go one at a time, in the order in which they asked; those that
 * only read it run side by side, until somebody who changes it asks. Records of who holds and who waits: `store/turns.ts`.
 */

import { ToolError } from '../errors/failure.ts';
import { canonicalJson, digest } from '../schema/canonical-json.ts';
import { type AnyTool, isMutating, qualifiedName } from '../tools/tool.ts';
import { describeValue } from '../tools/tool-answers.ts';

export interface ResourceLock {
  /** Names the resource within the fleet. */
  readonly resource: string;
  readonly mode: ResourceLockMode;
}

export type ResourceLockMode = 'exclusive' | 'shared';

/** Whether calls of the tool may have to wait for others. */
export function needsResourceLock(tool: AnyTool): boolean {
  return tool.resource !== undefined || !tool.parallel;
}

/**
 * The turn that a call has to wait for; undefined when it needs none. A tool that is not `parallel` shares nothing: each of its
 * calls has its resource to itself, and without a `resource` those of one session have one together. Resources belong to a tenant.
 * Throws whatever the tool's functions throw, and a `ToolError` for a resource that is no name.
 */
export function turnOf(
  tool: AnyTool,
  params: unknown,
  asked: { readonly tenantId?: string | undefined; readonly sessionKey: string },
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
  const what = name === undefined ? ['session', asked.sessionKey, qualifiedName(tool)] : ['resource', name];
  return {
    resource: digest(canonicalJson([asked.tenantId ?? null, ...what])),
    mode: !tool.parallel || isMutating(tool, params) ? 'exclusive' : 'shared',
  };
}
