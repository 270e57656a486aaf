import { expect, test } from 'vitest';
import { startScript } from '../../../helpers/process.ts';
import { PLACE, SUCCESS } from '../calls.ts';
import { done, isInMemory, loseCopy, moverOf, openWithFiles } from './moved-calls.ts';

const MOVER = new URL('./dying-mover.ts', import.meta.url);

/** The script or step at which the mover is killed, and where its calls are then. */
const DEATHS = [
  ['lease', 'after', 'memory'],
  ['find-movable', 'after', 'memory'],
  ['put', 'before', 'memory'],
  ['put', 'after', 'memory'],
  ['store-chunk', 'after', 'memory'],
  ['move-calls', 'before', 'memory'],
  ['move-calls', 'after', 'segment'],
] as const;

test('a mover that is killed at any step leaves its calls in memory or in a segment; the next one goes on', async () => {
  const { books, folder } = await openWithFiles();
  const { redisUrl, prefix } = books.world;
  for (const [step, when, place] of DEATHS) {
    const claim = await done(books);
    const { signal } = await startScript(MOVER, [redisUrl, prefix, folder, step, when]).ended;
    expect(signal, `${when} ${step}`).toBe('SIGKILL');
    expect(await isInMemory(books, claim.callId), `${when} ${step}`).toBe(place === 'memory');
    expect(await books.ledger.claim(claim), `${when} ${step}`).toMatchObject({ kind: 'ended', outcome: SUCCESS });
    // Its lease ends.
    await books.redis.unlink(`${books.ledger.keys(PLACE).segments}:mover`);
    expect(await moverOf(books).run()).toMatchObject({ calls: place === 'memory' ? 1 : 0 });
    await loseCopy(books, claim.callId);
    expect(await books.ledger.claim(claim), `${when} ${step}`).toMatchObject({ kind: 'ended', outcome: SUCCESS });
  }
  expect((await books.ledger.index.counts(PLACE)).inflight).toBe(0);
});
