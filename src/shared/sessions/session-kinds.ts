/** The kinds of sessions, and of what reaches people. The command line's help names them, and loads no schemas for that. */

export const SESSION_KINDS = ['main', 'branch', 'worker'] as const;
export type SessionKind = (typeof SESSION_KINDS)[number];

/** The way a session reaches people: its terminal, the operator's page, or a service of theirs (with `url`). */
export const CHANNEL_KINDS = ['console', 'operator', 'webhook'] as const;
