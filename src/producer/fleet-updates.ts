/** Broadcasts of other processes, by which this producer keeps its copies up to date. */
import type { Backend } from '../shared/store/backend.ts';
import { type Broadcast, type BroadcastHandlers, handleBroadcast } from '../shared/store/redis/broadcasts.ts';
import { verifiedMessage } from '../shared/store/signing/signed-text.ts';
import type { CircuitView } from './circuits/circuit-cache.ts';
import type { GroupRunner } from './groups/group-runner.ts';
import type { CircuitService } from './operations/circuit-service.ts';
import type { ReliabilityService } from './operations/reliability-service.ts';
import type { ListeningSessions } from './sessions/listening-sessions.ts';
import type { Session } from './sessions/session.ts';
import type { ProducerSessions } from './sessions/session-cache.ts';
import type { InvalidParams } from './sessions/session-events.ts';
import type { SubAgentService } from './sessions/sub-agents.ts';
import type { ToolCatalogue } from './tools/tool-catalogue.ts';
import type { ToolClients } from './tools/tool-clients.ts';

interface FleetUpdatesDeps {
  readonly inboxId: string;
  readonly backend: Pick<Backend, 'signatures' | 'breakers'>;
  readonly shards: Backend['shards'];
  readonly view: CircuitView;
  readonly circuits: Pick<CircuitService, 'catchUp'>;
  readonly reliability: Pick<ReliabilityService, 'catchUp'>;
  readonly catalogue: ToolCatalogue;
  readonly sessions: ProducerSessions;
  readonly agents: SubAgentService<Session>;
  readonly toolClients: ToolClients;
  readonly listening: ListeningSessions;
  readonly groups: Pick<GroupRunner, 'notifyChanged'>;
}

export class FleetUpdates {
  readonly #deps: FleetUpdatesDeps;
  readonly #catalogueListeners = new Set<() => void>();

  readonly #handlers: BroadcastHandlers;

  constructor(deps: FleetUpdatesDeps) {
    this.#deps = deps;
    this.#handlers = this.#makeHandlers();
  }

  /** Calls a listener when tools or workers were added or removed. The returned function removes the listener. */
  onCatalogueChange(listener: () => void): () => void {
    this.#catalogueListeners.add(listener);
    return () => void this.#catalogueListeners.delete(listener);
  }

  apply(broadcast: Broadcast): void {
    handleBroadcast(this.#handlers, broadcast);
  }

  #makeHandlers(): BroadcastHandlers {
    const { inboxId, backend, view, catalogue, agents, sessions, reliability, shards, toolClients } = this.#deps;
    const { listening, groups } = this.#deps;
    return {
      circuit: ({ circuit, ...rest }) => view.learn({ ...rest, circuit: backend.breakers.verified(rest.key, circuit) }),
      catalogue: () => {
        catalogue.refresh();
        this.#emitCatalogueChange();
      },
      agent: ({ sessionKey, agentId }) => agents.onOrder(sessionKey, agentId),
      session: ({ sessionKey }) => sessions.forget(sessionKey),
      taint: ({ sessionKey }) => sessions.forget(sessionKey),
      switches: () => void reliability.catchUp().catch(() => {}),
      shards: () => void shards.reload().catch(() => {}),
      specs: () =>
        void catalogue.specs.catchUp().then(
          () => this.#emitCatalogueChange(),
          () => {},
        ),
      offered: ({ tool }) => toolClients.notifyWaiting(tool),
      group: ({ id }) => groups.notifyChanged(id),
      'invalid-params': ({ sessionKey, from, event }) => {
        if (from === inboxId) return;
        const verified = verifiedMessage<InvalidParams>(backend.signatures, sessionKey, String(event));
        if (verified !== undefined) listening.emit(sessionKey, verified);
      },
    };
  }

  /** Broadcasts are lost until `catchUp`. */
  suspend(): void {
    this.#deps.sessions.suspend();
  }

  /** Reads all copies again, because broadcasts are lost while the connection is down. */
  async catchUp(): Promise<void> {
    const { circuits, reliability, catalogue, sessions, shards, agents } = this.#deps;
    sessions.clear();
    await Promise.all([reliability.catchUp(), circuits.catchUp(), catalogue.specs.catchUp(), shards.reload()]);
    agents.catchUp();
    // Tools may have come or gone meanwhile.
    this.#emitCatalogueChange();
  }

  #emitCatalogueChange(): void {
    for (const listener of this.#catalogueListeners) listener();
  }
}
