/** The states of sessions, which their owners set. */
import { PawlError } from '../../shared/errors/failure.ts';
import { type SessionRecord, sessionClosed } from '../../shared/sessions/session.ts';
import type { Sessions } from '../../shared/store/sessions/sessions.ts';

export interface StateDeps {
  readonly sessions: Pick<Sessions, 'setState' | 'tree'>;
  onChanged(changed: SessionRecord): Promise<void>;
}

/** Changes the state of a session and of its open descendants. Throws `UNKNOWN_SESSION` and `SESSION_CLOSED`. */
export async function changeState(
  { sessions, onChanged }: StateDeps,
  sessionKey: string,
  state: string,
): Promise<SessionRecord> {
  const changed = await sessions.setState(sessionKey, state);
  if (changed === undefined)
    throw new PawlError('UNKNOWN_SESSION', `There is no session ${JSON.stringify(sessionKey)}.`);
  if (changed.state !== state) throw sessionClosed(sessionKey);
  await onChanged(changed);
  const changedKeys = new Set([sessionKey]);
  // The loop ends when there is no new descendant: a session that is opened meanwhile gets the state of its parent.
  for (
    let descendants = await sessions.tree(sessionKey);
    descendants.length > changedKeys.size;
    descendants = await sessions.tree(sessionKey)
  )
    for (const key of descendants.filter((each) => !changedKeys.has(each))) {
      changedKeys.add(key);
      const descendant = await sessions.setState(key, state);
      if (descendant?.state === state) await onChanged(descendant);
    }
  return changed;
}
