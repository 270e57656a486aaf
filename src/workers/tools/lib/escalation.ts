import { z } from 'zod';
import { asksToEscalate, SANDBOX_PERMISSIONS } from '../../../shared/policy/sandbox-policy.ts';

/** The parameters by which the caller of a program-running tool asks to run outside of the sandbox. */
export const escalation = {
  sandbox_permissions: z
    .enum(SANDBOX_PERMISSIONS)
    .default('use_default')
    .describe(
      'require_escalated: ask a person to let this one command run outside of the sandbox, where it reaches the network and all files. Only where it failed inside, or is sure to. Default: use_default.',
    ),
  justification: z
    .string()
    .min(1)
    .max(2_000)
    .optional()
    .describe('With require_escalated: one sentence for the person who decides, on why the command needs it.'),
};

/** Stands before texts of any length: the end of a long summary is cut. */
export function escalationSuffix(params: Readonly<Record<string, unknown>>): string {
  return asksToEscalate(params) ? ' outside of the sandbox' : '';
}
