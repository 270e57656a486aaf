import { expect, test } from 'vitest';
import { NamedWaits } from '../../../src/shared/util/named-waits.ts';

const LONG_MS = 60_000;

test('news of any of its names ends a wait, also when it came before the wait began', async () => {
  const news = new NamedWaits();
  const [both, other] = [news.listen(['a', 'b'], undefined), news.listen(['c'], undefined)];
  news.notify('b');
  await both.within(LONG_MS);
  await other.within(1);
  both.stop();
  other.stop();
  expect(() => news.notify('a')).not.toThrow();
});

test('an abort ends a wait, and a stopped listener leaves those beside it', async () => {
  const news = new NamedWaits();
  const [stopped, left] = [news.listen(['a'], undefined), news.listen(['a'], undefined)];
  stopped.stop();
  news.notify('a');
  await left.within(LONG_MS);
  await news.listen(['a'], AbortSignal.abort()).within(LONG_MS);
});
