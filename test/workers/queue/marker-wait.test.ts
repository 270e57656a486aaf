import { expect, test } from 'vitest';
import { type Marker, MarkerWait } from '../../../src/workers/queue/marker-wait.ts';

/** A question that blocks until it is answered by hand. */
function questions() {
  const asked: PromiseWithResolvers<Marker>[] = [];
  const ask = () => {
    const question = Promise.withResolvers<Marker>();
    asked.push(question);
    return question.promise;
  };
  return { asked, ask };
}

const MARKER = { member: '0', score: 0 };

test('a marker, no marker and an error reach the one that waits', async () => {
  const { asked, ask } = questions();
  const wait = new MarkerWait(() => {});
  const first = wait.wait(5, ask);
  asked[0]?.resolve(MARKER);
  expect(await first).toEqual(MARKER);
  const second = wait.wait(5, ask);
  asked[1]?.resolve(null);
  expect(await second).toBeNull();
  const third = wait.wait(5, ask);
  asked[2]?.reject(new Error('gone'));
  await expect(third).rejects.toThrow('gone');
});

test('an interrupted wait ends at once, and the next wait uses the same blocking command', async () => {
  const { asked, ask } = questions();
  const wait = new MarkerWait(() => {});
  const first = wait.wait(5, ask);
  wait.interrupt();
  expect(await first).not.toBeNull();
  const second = wait.wait(5, ask);
  expect(asked).toHaveLength(1);
  asked[0]?.resolve(MARKER);
  expect(await second).toEqual(MARKER);
});

test('a shorter wait behind a longer question ends in its time', async () => {
  const { asked, ask } = questions();
  const wait = new MarkerWait(() => {});
  const first = wait.wait(60, ask);
  wait.interrupt();
  await first;
  expect(await wait.wait(0.001, ask)).toBeNull();
  expect(asked).toHaveLength(1);
});

test('a marker that comes during no wait goes to other workers', async () => {
  const { asked, ask } = questions();
  const passedOn: Marker[] = [];
  const wait = new MarkerWait((marker) => passedOn.push(marker));
  const first = wait.wait(5, ask);
  wait.interrupt();
  await first;
  asked[0]?.resolve(MARKER);
  await asked[0]?.promise;
  await Promise.resolve();
  expect(passedOn).toEqual([MARKER]);
});

test('a marker goes to other workers as well when no job can be taken here, and the wait ends', async () => {
  const { asked, ask } = questions();
  const passedOn: Marker[] = [];
  const wait = new MarkerWait(
    (marker) => passedOn.push(marker),
    () => false,
  );
  const first = wait.wait(5, ask);
  asked[0]?.resolve(MARKER);
  expect(await first).toEqual(MARKER);
  expect(passedOn).toEqual([MARKER]);
});

test('an interruption between two waits ends the next one at once', async () => {
  const { asked, ask } = questions();
  const wait = new MarkerWait(() => {});
  wait.interrupt();
  expect(await wait.wait(60, ask)).not.toBeNull();
  const second = wait.wait(60, ask);
  expect(asked).toHaveLength(1);
  wait.interrupt();
  expect(await second).not.toBeNull();
});
