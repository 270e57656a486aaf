/** Whether programs must run in a sandbox: always, where one works, or never. */
export const SANDBOX_POLICIES = ['required', 'preferred', 'off'] as const;
export type SandboxPolicy = (typeof SANDBOX_POLICIES)[number];

/**
 * A call's request to run its program outside of the sandbox. A person decides on each such call. The worker reads the request from the
 * approved parameters, never from the tool's code.
 */
export const SANDBOX_PERMISSIONS = ['use_default', 'require_escalated'] as const;

/** Any tool asks by a parameter of this name. */
export function asksToEscalate(params: Readonly<Record<string, unknown>> | undefined): boolean {
  return params?.['sandbox_permissions'] === 'require_escalated';
}
