import { PassThrough } from 'node:stream';
import { Command } from 'ioredis';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { type CommandLimits, CommandTimeouts } from '../../../../src/shared/store/redis/ioredis/command-timeout.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

class Queue {
  readonly items: { command: Command }[] = [];
  get length(): number {
    return this.items.length;
  }
  peekAt(index: number) {
    return this.items[index];
  }
}

function watched(limits: CommandLimits) {
  const queues = { commandQueue: new Queue(), prevCommandQueue: null as Queue | null, offlineQueue: new Queue() };
  const watch = new CommandTimeouts(queues, limits);
  const connect = () => {
    const stream = new PassThrough().resume();
    const cut = vi.fn();
    stream.on('error', cut);
    watch.attach(stream);
    return { stream, cut };
  };
  const send = (queue: Queue) => {
    const command = new Command('get', ['key']);
    const failed = vi.fn();
    command.promise.catch(failed);
    queue.items.push({ command });
    watch.start(command);
    return failed;
  };
  return { queues, connect, send };
}

describe('a command that waits for too long', () => {
  test('fails, whether it was sent, is to be sent again or never left, and younger ones go on waiting', async () => {
    const { queues, connect, send } = watched({ commandMs: 10_000 });
    connect();
    queues.prevCommandQueue = new Queue();
    const old = [send(queues.commandQueue), send(queues.prevCommandQueue), send(queues.offlineQueue)];
    await vi.advanceTimersByTimeAsync(5_000);
    const young = send(queues.commandQueue);
    await vi.advanceTimersByTimeAsync(4_500);
    for (const failed of old) expect(failed).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1_000);
    for (const failed of old) expect(failed).toHaveBeenCalledWith(new Error('Command timed out'));
    expect(young).not.toHaveBeenCalled();
  });

  test('is not limited without a limit, and nothing is checked while no command waits', async () => {
    const { queues, send } = watched({});
    const failed = send(queues.commandQueue);
    await vi.advanceTimersByTimeAsync(600_000);
    expect(failed).not.toHaveBeenCalled();
    queues.commandQueue.items.length = 0;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe('a wire on which an answer is due and nothing comes', () => {
  test('is cut; any word from the server is a sign of life', async () => {
    const { queues, connect, send } = watched({ silenceMs: 5_000 });
    const { stream, cut } = connect();
    send(queues.commandQueue);
    await vi.advanceTimersByTimeAsync(4_000);
    stream.write('+half an answer');
    await vi.advanceTimersByTimeAsync(4_000);
    expect(cut).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1_500);
    expect(cut).toHaveBeenCalledWith(new Error('Socket timeout: no data came for 5000 ms.'));
  });

  test('may be quiet while nothing is due, and a new connection has its own time for what is sent again', async () => {
    const { queues, connect, send } = watched({ silenceMs: 5_000 });
    const first = connect();
    await vi.advanceTimersByTimeAsync(60_000);
    send(queues.commandQueue);
    await vi.advanceTimersByTimeAsync(4_500);
    const second = connect();
    await vi.advanceTimersByTimeAsync(4_500);
    expect(first.cut).not.toHaveBeenCalled();
    expect(second.cut).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(second.cut).toHaveBeenCalledOnce();
  });
});
