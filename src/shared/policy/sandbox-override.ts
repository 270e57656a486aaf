/**
 * What a call that starts a program asks for beside the sandbox (C25): nothing, or to run outside of it. A person decides on that call
 * by call, and the worker that runs it takes it from the parameters that they decided on, never from the tool's code.
 */
export const SANDBOX_PERMISSIONS = ['use_default', 'require_escalated'] as const;

/** Under this name in any tool's parameters. */
export function asksToEscalate(params: Readonly<Record<string, unknown>> | undefined): boolean {
  return params?.['sandbox_permissions'] === 'require_escalated';
}
