/** The kinds of channels and sessions. They stand apart from the schemas, so that the command line's help loads none. */

export const SESSION_KINDS = ['main', 'branch', 'worker'] as const;
export type SessionKind = (typeof SESSION_KINDS)[number];

/** The channels within the fleet: the session's terminal, and the operator's page. */
export const LOCAL_CHANNELS = ['console', 'operator'] as const;
export type LocalChannel = (typeof LOCAL_CHANNELS)[number];

/** A `webhook` is a chat service, at the `url` of the channel. */
export const CHANNEL_KINDS = [...LOCAL_CHANNELS, 'webhook'] as const;

/** The URL of a webhook; undefined for a channel within the fleet. */
export function webhookUrl(channel: { readonly kind: string; readonly [name: string]: unknown }): string | undefined {
  if (channel.kind !== 'webhook') return undefined;
  return typeof channel['url'] === 'string' ? channel['url'] : '';
}
