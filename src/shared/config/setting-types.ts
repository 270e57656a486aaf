/** Kinds of values that settings share. */
import { z } from 'zod';
import { hostInUrl } from '../util/hosts.ts';
import { MAX_KEPT_MS, MAX_WAIT_MS } from '../util/time.ts';
import { MODES } from './switches.ts';

export const bytes = z.number().int().positive();

/** `host` or `host:port`, as it stands in a URL. */
export const hostWithPort = z
  .string()
  .refine(
    (text) => /^(?:[\w.-]+|\[.*\])(?::\d+)?$/.test(hostInUrl(text)),
    'must be host or host:port, without a scheme, a path or a wildcard',
  );

/** A time that a process waits. */
export const waitMs = z.number().int().min(0).max(MAX_WAIT_MS);

/** A time that Redis keeps something. */
export const keptMs = z.number().int().positive().max(MAX_KEPT_MS);

export const onOff = z.enum(['on', 'off']);

/** `durability.ts` explains the values. */
export const durability = z.enum(['everysec', 'always', 'waitaof']);

export const mode = z.enum(MODES);
