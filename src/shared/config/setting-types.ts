/** Kinds of values that settings share. */
import { resolve } from 'node:path';
import { z } from 'zod';
import { forbiddenRoot } from '../policy/workspace-root.ts';
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

/** Whether a folder can be made there. In /proc, Node tries for ever. */
export function isFolderPath(path: string): boolean {
  return !/^\/proc(?:\/|$)/.test(resolve(path));
}

export const NO_FOLDER_PATH = 'must be a folder of files, not one of /proc';

/** A folder that Pawl makes where there is none. */
export const folderPath = z.string().min(1).refine(isFolderPath, NO_FOLDER_PATH);

/** A folder with workspaces, which may come into being later. */
export const workspacePath = z
  .string()
  .min(1)
  .superRefine((path, { addIssue }) => {
    const fault = forbiddenRoot(path, []);
    if (fault !== undefined)
      addIssue({ code: 'custom', message: `must be a folder that can be a workspace, and ${fault}` });
  });

/** The folder that the setting `blobStore` names; undefined for `redis`, and for `file`, which is below the data folder. */
export function blobFolder(blobStore: string): string | undefined {
  return /^file:(.+)$/s.exec(blobStore)?.[1];
}

/** A time that a process waits. */
export const waitMs = z.number().int().min(0).max(MAX_WAIT_MS);

/** A time that Redis keeps something. */
export const keptMs = z.number().int().positive().max(MAX_KEPT_MS);

export const onOff = z.enum(['on', 'off']);

/** `durability.ts` explains the values. */
export const durability = z.enum(['everysec', 'always', 'waitaof']);

export const mode = z.enum(MODES);
