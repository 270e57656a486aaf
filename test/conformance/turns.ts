/** What taking turns is, whatever keeps them (C3): first come, first served; readers together, writers alone. */
import { describe, expect, test } from 'vitest';
import type { ResourceLock, ResourceLockMode } from '../../src/shared/limits/resource-lock.ts';
import { digest } from '../../src/shared/schema/canonical-json.ts';
import type { ResourceLockRecords } from '../../src/shared/store/ports.ts';

export interface TurnRig {
  readonly locks: ResourceLockRecords;
  /** The calls that wait and are called now, in order. */
  called(): Promise<readonly string[]>;
}

export const jobFor = (name: string) => ({ callId: `w0.${digest(name)}`, generation: '1' });

export function turnsBehave(open: (names: readonly string[]) => Promise<TurnRig>): void {
  const rigFor = async (...names: readonly string[]) => {
    const { locks, called } = await open(names);
    const take = async (name: string, mode: ResourceLockMode, resource = 'a', any = true) => {
      const turn: ResourceLock = { resource: digest(resource), mode };
      return (await locks.acquire(jobFor(name), 1, turn, any)).kind;
    };
    const leave = async (name: string) => {
      await locks.release(jobFor(name), 1);
      return called();
    };
    return { take, leave, locks };
  };

  describe('turns at a resource (C3)', () => {
    test('those who change it go one by one, in the order in which they asked', async () => {
      const { take, leave } = await rigFor('1', '2', '3');
      expect(await take('1', 'exclusive')).toBe('granted');
      expect(await take('2', 'exclusive')).toBe('waiting');
      expect(await take('3', 'exclusive')).toBe('waiting');
      expect(await leave('1')).toEqual(['2']);
      expect(await take('3', 'exclusive')).toBe('waiting');
      expect(await take('2', 'exclusive')).toBe('granted');
      expect(await leave('2')).toEqual(['3']);
    });

    test('readers go together until a writer asks, and no call overtakes another', async () => {
      const { take, leave } = await rigFor('1', '2', '3', '4', '5');
      expect(await take('1', 'shared')).toBe('granted');
      expect(await take('2', 'shared')).toBe('granted');
      expect(await take('3', 'exclusive')).toBe('waiting');
      expect(await take('4', 'shared')).toBe('waiting');
      expect(await take('5', 'shared')).toBe('waiting');
      expect(await leave('1')).toEqual([]);
      expect(await leave('2')).toEqual(['3']);
      expect(await leave('3')).toEqual(['4', '5']);
    });

    test('a lock concerns no other resource', async () => {
      const { take } = await rigFor('1', '2');
      expect(await take('1', 'exclusive', 'a')).toBe('granted');
      expect(await take('2', 'exclusive', 'b')).toBe('granted');
    });

    test('a call asks as often as it likes, and has one turn', async () => {
      const { take, leave } = await rigFor('1', '2', '3');
      expect(await take('1', 'exclusive')).toBe('granted');
      expect(await take('1', 'exclusive')).toBe('granted');
      expect(await take('2', 'exclusive')).toBe('waiting');
      expect(await take('2', 'exclusive')).toBe('waiting');
      expect(await take('3', 'exclusive')).toBe('waiting');
      expect(await leave('1')).toEqual(['2']);
      expect(await leave('2')).toEqual(['3']);
    });

    test('a call that gives up waiting lets those behind it forward', async () => {
      const { take, leave } = await rigFor('1', '2', '3');
      await take('1', 'shared');
      expect(await take('2', 'exclusive')).toBe('waiting');
      expect(await take('3', 'shared')).toBe('waiting');
      expect(await leave('2')).toEqual(['3']);
    });

    test('parameters that were rewritten take the turn that they need, and give the other one up', async () => {
      const { take, leave } = await rigFor('1', '2', '3');
      await take('2', 'exclusive', 'b');
      expect(await take('1', 'exclusive', 'a')).toBe('granted');
      expect(await take('3', 'exclusive', 'a')).toBe('waiting');
      expect(await take('1', 'exclusive', 'b', false)).toBe('waiting');
      expect(await leave('2')).toEqual(['3', '1']);
      // What it has been granted will do until its parameters are final.
      expect(await take('1', 'exclusive', 'a')).toBe('granted');
      expect(await take('1', 'exclusive', 'b', false)).toBe('granted');
    });
  });
}
