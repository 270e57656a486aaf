/** A17: which base tools the sessions of each kind have, and parameters to ask for each. */
import type { SessionKind } from '../../src/shared/sessions/channel-kinds.ts';

/** The seed's table. */
export const AVAILABLE: Readonly<Record<string, readonly SessionKind[]>> = {
  read: ['main', 'branch', 'worker'],
  write: ['main', 'branch'],
  edit: ['main', 'branch'],
  shell: ['main', 'branch'],
  message: ['main', 'branch'],
  memory_search: ['main', 'branch', 'worker'],
  memory_store: ['main', 'branch'],
  web_search: ['main', 'branch', 'worker'],
  web_fetch: ['main', 'branch', 'worker'],
};
export const PARAMS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  read: { path: 'absent.txt' },
  write: { path: 'a.txt', content: 'x' },
  edit: { path: 'absent.txt', old_string: 'a', new_string: 'b' },
  shell: { command: ['true'] },
  message: { text: 'x' },
  memory_search: { query: 'x' },
  memory_store: { text: 'x' },
  web_search: { query: 'x' },
  web_fetch: { url: 'http://127.0.0.1:9/' },
};
