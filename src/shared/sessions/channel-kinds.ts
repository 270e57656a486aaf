/** The kinds of channels and sessions. They stand apart from the schemas, so that the command line's help loads none. */

export const SESSION_KINDS = ['main', 'branch', 'worker'] as const;
export type SessionKind = (typeof SESSION_KINDS)[number];

/** The channels within the fleet: the session's terminal, and the operator's page. */
export const LOCAL_CHANNELS = ['console', 'operator'] as const;
export type LocalChannel = (typeof LOCAL_CHANNELS)[number];

/**
 * The channels to services of people, each with the field of its target. `allowed` names the setting with the targets that the API's
 * agents may use: who receives messages can decide approvals. A further service is an entry here and a delivery
 * in `workers/approvals/channels.ts`.
 */
export const REMOTE_CHANNELS = {
  webhook: {
    field: 'url',
    isValid: (url: string) => /^https?:/.test(url) && URL.canParse(url),
    expected: 'of a webhook must be an http or https URL',
    allowed: 'webhooks',
  },
} as const;
export type RemoteChannel = keyof typeof REMOTE_CHANNELS;
export const REMOTE_KINDS = Object.keys(REMOTE_CHANNELS) as RemoteChannel[];

export const CHANNEL_KINDS = [...LOCAL_CHANNELS, ...REMOTE_KINDS];

/** The target of a remote channel; undefined for a local one. */
export function channelTarget(channel: { readonly kind: string; readonly [name: string]: unknown }) {
  const kind = REMOTE_KINDS.find((candidate) => candidate === channel.kind);
  if (kind === undefined) return undefined;
  const value = channel[REMOTE_CHANNELS[kind].field];
  return { ...REMOTE_CHANNELS[kind], kind, value: typeof value === 'string' ? value : '' };
}
