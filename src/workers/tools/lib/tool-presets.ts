/** The common options of each kind of tool, to be spread into a definition: tier, effects, hints and needed capabilities. */

export const readsFiles = {
  tier: 'read-only',
  effects: 'none',
  annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
  needs: ['workspace:read'],
} as const;

/** Effects `probe`: after a crash the files themselves show what happened. */
export const editsFiles = {
  tier: 'workspace',
  effects: 'probe',
  annotations: {
    readOnlyHint: false,
    destructiveHint: true,
    idempotentHint: false,
    openWorldHint: false,
    editHint: true,
  },
  needs: ['workspace:read', 'workspace:write'],
} as const;

/** Effects `once`: no probe can find out what a program did. */
export const runsPrograms = {
  tier: 'system',
  effects: 'once',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  needs: ['processes'],
} as const;
