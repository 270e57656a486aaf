/** The client of a Redis Cluster, which sends each command to the node that has its key. */
import { setTimeout as pause } from 'node:timers/promises';
import { Cluster, type Command } from 'ioredis';
import type { NodeAddress } from './address.ts';
import { CLOSED, typeErrors, unavailable } from './backend-error.ts';
import type { clusterOptions } from './connection-options.ts';

const SLOTS = 16_384;
/** A fault of a node explains commands that fail within this time: they are tried again for as long. */
const FAULT_MS = 10_000;
/** The delay between two looks for masters that answer. */
const LOOK_MS = 200;
const LOST = 'the connection was lost.';
/** ioredis' final error of a command that no node took, if it hides the fault of the node. */
const HIDES_FAULT =
  /^(?:Connection is closed\.|Too many Cluster redirections\. Last error: .*(?:Connection is closed\.|MOVED .*))$/;

/** Rejects every command with a typed error while the cluster cannot take it. */
export class TypedCluster extends Cluster {
  #fault: { readonly text: string; readonly atMs: number } | undefined;
  /** The last answer to CLUSTER INFO, which ioredis asks before it uses the cluster. */
  #info = '';
  #isClosedHere = false;

  constructor(nodes: readonly NodeAddress[], options: ReturnType<typeof clusterOptions>) {
    super([...nodes], options);
    this.on('node error', ({ message }: Error, node: string) => {
      if (message !== CLOSED) this.#fault = { text: `${node}: ${message}`, atMs: performance.now() };
    });
  }

  override sendCommand(command: Command, stream?: Parameters<Cluster['sendCommand']>[1], node?: unknown): unknown {
    if (typeErrors(command, (error) => this.#explain(error))) {
      // `CommandTimeouts` limits the commands of a single server; here they may wait for a node first.
      const timeoutMs = this.options.redisOptions?.commandTimeout;
      if (timeoutMs !== undefined) command.setTimeout(timeoutMs);
      if (command.name === 'cluster') command.promise.then((info) => this.#keepInfo(info)).catch(() => {});
    }
    return super.sendCommand(command, stream, node);
  }

  override disconnect(reconnect = false): void {
    this.#isClosedHere ||= !reconnect;
    super.disconnect(reconnect);
  }

  #keepInfo(info: unknown): void {
    this.#info = String(info);
  }

  /** The reason why ioredis closes the connections to all nodes again and again. */
  closedReason(): string {
    const fault = this.#newFault();
    if (!/^cluster_state:fail/m.test(this.#info))
      return fault === undefined
        ? 'the nodes of the cluster announce no addresses (cluster-announce-ip, cluster-announce-hostname, cluster-preferred-endpoint-type)'
        : `no node of the cluster can be reached at the address that it announces (cluster-announce-ip, cluster-announce-hostname): ${fault}`;
    const served = Number(/^cluster_slots_ok:(\d+)/m.exec(this.#info)?.[1] ?? SLOTS);
    const why =
      served < SLOTS
        ? `${SLOTS - served} of its ${SLOTS} slots have no master that answers`
        : 'the node that answered cannot reach most of the masters';
    return `the cluster is down (cluster_state:fail), as ${why}${fault === undefined ? '' : `: ${fault}`}`;
  }

  /**
   * Resolves when each master answers. One that does not may be failing over, so its slots are looked for again. Rejects with
   * `BACKEND_UNAVAILABLE` after `timeoutMs`.
   */
  async awaitMasters(timeoutMs: number): Promise<void> {
    const endMs = performance.now() + timeoutMs;
    for (;;) {
      try {
        await Promise.all(this.nodes('master').map((node) => node.ping()));
        return;
      } catch (error) {
        const isLate = performance.now() >= endMs;
        if (isLate && (error as Error).name === 'ReplyError') throw unavailable(error as Error);
        if (isLate)
          throw unavailable(new Error(`a master of the cluster does not answer: ${this.#newFault() ?? LOST}`));
      }
      await pause(LOOK_MS);
      await new Promise<void>((resolve) => this.refreshSlotsCache(() => resolve()));
    }
  }

  /** ioredis says only that a connection was closed, or that the command would belong to another node. */
  #explain(error: Error): Error {
    if (this.#isClosedHere || !HIDES_FAULT.test(error.message)) return error;
    return new Error(`Too many Cluster redirections. Last error: ${this.#newFault() ?? LOST}`);
  }

  #newFault(): string | undefined {
    return this.#fault !== undefined && performance.now() - this.#fault.atMs < FAULT_MS ? this.#fault.text : undefined;
  }
}
