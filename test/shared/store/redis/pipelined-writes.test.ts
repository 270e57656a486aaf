import { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { PipelinedWrites } from '../../../../src/shared/store/redis/ioredis/pipelined-writes.ts';
import { openBooks } from '../calls.ts';

/** A connection on which nothing is answered until it is told to. */
function openLine() {
  const written: string[] = [];
  let unanswered = 0;
  const stream = new Duplex({
    decodeStrings: false,
    read: () => {},
    write: (chunk: string, _encoding, done) => {
      written.push(chunk);
      done();
    },
  });
  const writes = new PipelinedWrites(() => unanswered);
  writes.attach(stream);
  const send = (command: string, commands = 1) => {
    stream.write(command);
    unanswered += commands;
    writes.addCommands(commands);
  };
  const answer = async (commands: number) => {
    unanswered -= commands;
    stream.push('+OK');
    await turn();
  };
  return { written, send, answer };
}

test('a single command goes at once, and those of one turn go together', async () => {
  const { written, send } = openLine();
  send('a');
  expect(written).toEqual([]);
  await turn();
  send('b');
  send('c');
  await turn();
  expect(written).toEqual(['a', 'bc']);
});

test('what is less than half of all waits for answers, and needs no further command to go', async () => {
  const { written, send, answer } = openLine();
  for (const command of ['a', 'b', 'c', 'd']) send(command);
  await turn();
  send('e');
  await turn();
  expect(written).toEqual(['abcd']);
  await answer(2);
  expect(written).toEqual(['abcd']);
  await answer(1);
  expect(written).toEqual(['abcd', 'e']);
});

test('what gathers over several turns goes as soon as it is half of all', async () => {
  const { written, send } = openLine();
  send('a');
  send('b');
  await turn();
  send('c');
  await turn();
  expect(written).toEqual(['ab']);
  send('d');
  await turn();
  expect(written).toEqual(['ab', 'cd']);
});

test('the commands of a pipeline count as many', async () => {
  const { written, send } = openLine();
  send('abc', 3);
  await turn();
  expect(written).toEqual(['abc']);
});

test('long text does not wait', async () => {
  const { written, send } = openLine();
  const long = 'x'.repeat(16 * 1_024);
  send(long);
  send('b');
  expect(written).toEqual([long]);
});

test('nothing stays behind when commands of all kinds come together', async () => {
  const { redis } = await openBooks();
  const many = (number: number) => Promise.all(Array.from({ length: number }, () => redis.time()));
  const all = await Promise.all([
    many(50),
    redis.multi().ping().ping().exec(),
    redis.pipeline().ping().time().exec(),
    redis.echo('y'.repeat(100_000)),
    turn().then(() => many(3)),
  ]);
  expect(all[1]).toEqual([
    [null, 'PONG'],
    [null, 'PONG'],
  ]);
});
