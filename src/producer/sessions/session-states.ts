/** The states of sessions, which their owners set. */
import { PawlError } from '../../shared/errors/failure.ts';
import { type SessionRecord, sessionClosed } from '../../shared/sessions/session.ts';
import type { Sessions } from '../../shared/store/sessions/sessions.ts';

export interface StateParts {
  readonly sessions: Pick<Sessions, 'setState' | 'tree'>;
  onChanged(changed: SessionRecord): Promise<void>;
}

/** Changes the state of a session and of all below it, which are closed or change with it. Throws `UNKNOWN_SESSION` and `SESSION_CLOSED`. */
export async function changeState(
  { sessions, onChanged }: StateParts,
  sessionKey: string,
  state: string,
): Promise<SessionRecord> {
  const changed = await sessions.setState(sessionKey, state);
  if (changed === undefined)
    throw new PawlError('UNKNOWN_SESSION', `There is no session ${JSON.stringify(sessionKey)}.`);
  if (changed.state !== state) throw sessionClosed(sessionKey);
  await onChanged(changed);
  const done = new Set([sessionKey]);
  // The loop runs until no session is new: one that is opened meanwhile takes the state of its parent.
  for (let below = await sessions.tree(sessionKey); below.length > done.size; below = await sessions.tree(sessionKey))
    for (const key of below.filter((each) => !done.has(each))) {
      done.add(key);
      const under = await sessions.setState(key, state);
      if (under?.state === state) await onChanged(under);
    }
  return changed;
}
