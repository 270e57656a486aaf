/** Broadcasts of other processes, by which this producer keeps its copies up to date. */
import type { Backend } from '../shared/store/backend.ts';
import type { Broadcast, CircuitBroadcast } from '../shared/store/redis/broadcasts.ts';
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

export interface FleetUpdatesDeps {
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

  constructor(deps: FleetUpdatesDeps) {
    this.#deps = deps;
  }

  /** Calls a listener when tools or workers were added or removed. The returned function removes the listener. */
  onCatalogueChange(listener: () => void): () => void {
    this.#catalogueListeners.add(listener);
    return () => void this.#catalogueListeners.delete(listener);
  }

  apply(broadcast: Broadcast): void {
    const { inboxId, catalogue, agents, sessions, reliability, shards, toolClients } = this.#deps;
    switch (broadcast.type) {
      case 'circuit':
        this.#learnCircuit(broadcast);
        break;
      case 'catalogue':
        catalogue.refresh();
        this.#emitCatalogueChange();
        break;
      case 'agent':
        agents.onOrder(broadcast.sessionKey, broadcast.agentId);
        break;
      case 'session':
      case 'taint':
        sessions.forget(broadcast.sessionKey);
        break;
      case 'switches':
        reliability.catchUp().catch(() => {});
        break;
      case 'shards':
        shards.reload().catch(() => {});
        break;
      case 'specs':
        catalogue.specs.catchUp().then(
          () => this.#emitCatalogueChange(),
          () => {},
        );
        break;
      case 'offered':
        toolClients.notifyWaiting(broadcast.tool);
        break;
      case 'group':
        this.#deps.groups.notifyChanged(broadcast.id);
        break;
      case 'invalid-params':
        if (broadcast.from !== inboxId) this.#emitInvalidParams(broadcast);
        break;
      default:
        break;
    }
  }

  /** Reads all copies again, because broadcasts are lost while the connection is down. */
  async catchUp(): Promise<void> {
    const { circuits, reliability, catalogue, sessions, shards, agents } = this.#deps;
    sessions.clear();
    await Promise.all([reliability.catchUp(), circuits.catchUp(), catalogue.specs.catchUp(), shards.reload()]);
    agents.catchUp();
  }

  #learnCircuit({ circuit, ...broadcast }: CircuitBroadcast): void {
    const { backend, view } = this.#deps;
    view.learn({ ...broadcast, circuit: backend.breakers.verified(broadcast.key, circuit) });
  }

  #emitInvalidParams({ sessionKey, event }: Extract<Broadcast, { type: 'invalid-params' }>): void {
    const verified = verifiedMessage<InvalidParams>(this.#deps.backend.signatures, sessionKey, String(event));
    if (verified !== undefined) this.#deps.listening.emit(sessionKey, verified);
  }

  #emitCatalogueChange(): void {
    for (const listener of this.#catalogueListeners) listener();
  }
}
