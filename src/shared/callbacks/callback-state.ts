/** The states of a callback. */

export const CALLBACK_STATES = ['pending', 'failing', 'delivered', 'failed'] as const;
/** `pending`: not sent yet; `failing`: an attempt failed and another follows; `failed`: only a replay sends it again. */
export type CallbackState = (typeof CALLBACK_STATES)[number];
