/** Subscribes a session to events of other processes while the program has listeners for them. */
import type { EventEmitter } from 'node:events';

interface Subscriptions<Session> {
  /** Messages to sub-agents. Absent without a fleet. */
  readonly agents?: { listen(session: Session): void; unlisten(session: Session): void } | undefined;
  readonly listening: { add(session: Session): void; remove(session: Session): void };
}

export function receiveWhileListened<Session>(
  session: Session,
  events: EventEmitter,
  { agents, listening }: Subscriptions<Session>,
): void {
  // Adapters add a listener for each call in flight: many listeners are no leak.
  events.setMaxListeners(0);
  events.on('newListener', (name) => {
    if (name === 'invalid-params') listening.add(session);
    // A message leaves its mailbox only when a listener can receive it.
    if (name === 'agent')
      queueMicrotask(() => {
        if (events.listenerCount(name) > 0) agents?.listen(session);
      });
  });
  events.on('removeListener', (name) => {
    if (events.listenerCount(name) > 0) return;
    if (name === 'invalid-params') listening.remove(session);
    if (name === 'agent') agents?.unlisten(session);
  });
}
