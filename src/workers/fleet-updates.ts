/** Keeps a worker's view of the fleet up to date: by broadcasts, and by a full read after a lost subscription. */
import { PawlError } from '../shared/errors/failure.ts';
import type { Backend } from '../shared/store/backend.ts';
import { type Broadcast, type BroadcastHandlers, handleBroadcast } from '../shared/store/redis/broadcasts.ts';
import type { Tier } from '../shared/tools/tool.ts';
import type { WorkerParts } from './compose-worker.ts';

interface WorkerFleetUpdatesDeps {
  readonly backend: Backend;
  readonly tiers: readonly Tier[];
  readonly parts: WorkerParts;
  onDrainAsked(): void;
  onError(error: Error): void;
}

export class WorkerFleetUpdates {
  readonly #deps: WorkerFleetUpdatesDeps;

  readonly #handlers: BroadcastHandlers;

  constructor(deps: WorkerFleetUpdatesDeps) {
    this.#deps = deps;
    this.#handlers = this.#makeHandlers();
  }

  #makeHandlers(): BroadcastHandlers {
    const { parts, onDrainAsked, onError } = this.#deps;
    const { sessions } = parts;
    return {
      cancel: ({ callId, because }) => {
        if (because === 'cancelled') parts.running.ofCall(callId)?.abort(new PawlError('CANCELLED'));
      },
      circuit: ({ key, circuit }) => {
        parts.nodeCircuits.learn(key, circuit.state);
        parts.forced.learn(circuit);
      },
      session: ({ sessionKey }) => {
        sessions.forget(sessionKey);
        parts.terminals.endSession(sessionKey);
      },
      taint: ({ sessionKey }) => sessions.forget(sessionKey),
      switches: () => void this.updateSwitches().catch(onError),
      specs: () => void parts.declared.catchUp().catch(onError),
      shards: () => void this.refreshQueues().catch(onError),
      question: ({ id }) => parts.channels.onQuestionEnded(id),
      handover: ({ callId }) => parts.dynamic.notify(callId),
      callback: () => parts.callbacks.wake(),
      drain: ({ workerId }) => {
        if (workerId === parts.workerId) onDrainAsked();
      },
      catalogue: () => void parts.heartbeat.learnPeers().catch(onError),
    };
  }

  receive(broadcast: Broadcast): void {
    handleBroadcast(this.#handlers, broadcast);
  }

  /** Broadcasts are lost until `catchUp`. */
  suspend(): void {
    this.#deps.parts.sessions.suspend();
  }

  /** Reads everything again, because broadcasts may have been missed. */
  async catchUp(): Promise<void> {
    const { sessions, forced, nodeCircuits, declared, heartbeat, running, renew } = this.#deps.parts;
    sessions.clear();
    this.#deps.parts.callbacks.wake();
    await Promise.all([
      this.updateSwitches(),
      forced.catchUp(this.#deps.tiers).then((circuits) => nodeCircuits.relearn(circuits)),
      declared.catchUp(),
      this.refreshQueues(),
      heartbeat.republish(),
    ]);
    await Promise.all([...running.all()].map(renew));
  }

  async updateSwitches(): Promise<void> {
    this.#deps.parts.switches.update(await this.#deps.backend.switches.read());
  }

  async refreshQueues(): Promise<void> {
    await this.#deps.backend.shards.reload();
    await this.#deps.parts.queues.refresh();
  }
}
