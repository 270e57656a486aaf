/** The states of a callback. */

export const CALLBACK_STATES = ['pending', 'failing', 'delivered', 'failed'] as const;
/** `pending`: not sent yet; `failing`: sent in vain, and sent again; `failed`: not sent again by itself. */
export type CallbackState = (typeof CALLBACK_STATES)[number];
