/** What the tools of one kind have in common, to be spread into a definition: tier, effects, hints, and the handles that they need. */

export const readsFiles = {
  tier: 'read-only',
  effects: 'none',
  annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
  needs: ['workspace:read'],
} as const;

/** Effects `probe`: after a crash the files themselves tell what happened. */
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

/** Effects `once`: what a program did cannot be asked afterwards. */
export const runsPrograms = {
  tier: 'system',
  effects: 'once',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  needs: ['processes'],
} as const;
