/** Whether programs must run in a sandbox: always, where one works, or never. */
export const SANDBOX_POLICIES = ['required', 'preferred', 'off'] as const;
export type SandboxPolicy = (typeof SANDBOX_POLICIES)[number];
