/** Keeps a worker's view of the fleet up to date: by broadcasts, and by a full read after a lost subscription. */
import { PawlError } from '../shared/errors/failure.ts';
import type { Backend } from '../shared/store/backend.ts';
import type { Broadcast } from '../shared/store/redis/broadcasts.ts';
import type { Tier } from '../shared/tools/tool.ts';
import type { WorkerParts } from './worker-parts.ts';

export interface FleetNewsDeps {
  readonly backend: Backend;
  readonly tiers: readonly Tier[];
  readonly parts: WorkerParts;
  onDrainAsked(): void;
  onError(error: Error): void;
}

export class FleetNews {
  readonly #deps: FleetNewsDeps;

  constructor(deps: FleetNewsDeps) {
    this.#deps = deps;
  }

  receive(broadcast: Broadcast): void {
    const { workerId, sessions, channels, dynamic, declared, heartbeat } = this.#deps.parts;
    switch (broadcast.type) {
      case 'cancel':
        this.#cancel(broadcast);
        return;
      case 'circuit':
        this.#learnCircuit(broadcast);
        return;
      case 'session':
        sessions.forget(broadcast.sessionKey);
        this.#deps.parts.terminals.endSession(broadcast.sessionKey);
        return;
      case 'taint':
        sessions.forget(broadcast.sessionKey);
        return;
      case 'switches':
        this.#run(this.updateSwitches());
        return;
      case 'specs':
        this.#run(declared.catchUp());
        return;
      case 'shards':
        this.#run(this.refreshQueues());
        return;
      case 'question':
        channels.onQuestionEnded(broadcast.id);
        return;
      case 'handover':
        dynamic.notify(broadcast.callId);
        return;
      case 'callback':
        this.#deps.parts.callbacks.wake();
        return;
      case 'drain':
        if (broadcast.workerId === workerId) this.#deps.onDrainAsked();
        return;
      case 'catalogue':
        this.#run(heartbeat.learnPeers());
        return;
    }
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

  #cancel({ callId, because }: Extract<Broadcast, { type: 'cancel' }>): void {
    if (because === 'cancelled') this.#deps.parts.running.ofCall(callId)?.abort(new PawlError('CANCELLED'));
  }

  #learnCircuit({ key, circuit }: Extract<Broadcast, { type: 'circuit' }>): void {
    this.#deps.parts.nodeCircuits.learn(key, circuit.state);
    this.#deps.parts.forced.learn(circuit);
  }

  #run(task: Promise<void>): void {
    task.catch(this.#deps.onError);
  }
}
