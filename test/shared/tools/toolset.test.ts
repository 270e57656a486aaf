import { describe, expect, test } from 'vitest';
import { cached, filtered, prefixed, renamed, resolveToolsets, toolset } from '../../../src/shared/tools/toolset.ts';

const tool = (name: string) => ({ namespace: 'tools', name });
const names = (tools: readonly { name: string }[]) => tools.map(({ name }) => name);
const nobody = { published: [] };

describe('D10: toolsets', () => {
  test('static and dynamic ones are merged, in order', async () => {
    const forUser = toolset('per-user', ({ session }) => (session?.actorId === 'ada' ? [tool('deploy')] : []));
    const sets = [toolset('base', [tool('read')]), forUser];
    const ada = { session: { sessionKey: 's', kind: 'main', actorId: 'ada' }, published: [] };
    expect(names(await resolveToolsets(sets, ada))).toEqual(['read', 'deploy']);
    expect(names(await resolveToolsets(sets, nobody))).toEqual(['read']);
  });

  test('anything but a list or a function is refused when the toolset is made', () => {
    expect(() => toolset('base', tool('read') as never)).toThrow(
      'Toolset "base": its tools must be a list, or a function',
    );
  });

  test('they are filtered, prefixed and renamed', async () => {
    const set = toolset('github', [tool('search'), tool('delete')]);
    const kept = prefixed(
      filtered(set, ({ name }) => name !== 'delete'),
      'gh_',
    );
    expect(names(await resolveToolsets([kept, renamed(set, { search: 'find' })], nobody))).toEqual([
      'gh_search',
      'find',
      'delete',
    ]);
    const hostile = renamed(toolset('hostile', [tool('constructor')]), { search: 'find' });
    expect(names(await resolveToolsets([hostile], nobody))).toEqual(['constructor']);
    await expect(resolveToolsets([prefixed(set, '9 ')], nobody)).rejects.toThrow(
      '"9 search" cannot be the name of a tool',
    );
  });

  test('an error names its toolset, and a duplicate name both of its toolsets', async () => {
    const broken = toolset('mcp-server', () => {
      throw new Error('connection refused');
    });
    await expect(resolveToolsets([broken], nobody)).rejects.toMatchObject({
      code: 'CONFIGURATION',
      message: 'The toolset "mcp-server" failed: connection refused',
    });
    const one = toolset('one', [tool('read')]);
    await expect(resolveToolsets([one, toolset('two', [tool('read')])], nobody)).rejects.toThrow(
      'The toolsets one and two both offer tools.read',
    );
  });

  test('the tools of a session are kept for a time; a failure is not', async () => {
    let nowMs = 0;
    let asked = 0;
    const set = cached(
      toolset('slow', () => {
        asked += 1;
        if (asked === 1) throw new Error('not yet');
        return [tool(`tool_${asked}`)];
      }),
      1_000,
      { monotonic: () => nowMs },
    );
    const resolve = async () => names(await resolveToolsets([set], nobody));
    await expect(resolve()).rejects.toThrow('not yet');
    expect([await resolve(), await resolve()]).toEqual([['tool_2'], ['tool_2']]);
    nowMs = 1_000;
    expect(await resolve()).toEqual(['tool_3']);
  });
});

test.each([
  ['nothing', undefined, 'nothing'],
  ['null', null, 'null'],
  ['a text', 'search', 'a text'],
  ['an object', { search: tool('search') }, '{ search }'],
  ['a list with a hole', [tool('search'), null], 'a list'],
  ['names alone', ['search'], 'a list'],
  ['a promise of nothing', Promise.resolve(), 'nothing'],
])('a toolset that returns %s is named, and what it must return', async (_what, answer, words) => {
  const odd = toolset('web', () => answer as never);
  const message = `The toolset "web" failed: it must return a list of tools within 30 s; it returned ${words}`;
  await expect(resolveToolsets([odd], nobody)).rejects.toMatchObject({ code: 'CONFIGURATION', message });
});

test.each([Number.NaN, undefined, '60s'])('a cache whose time is %s is refused, and not kept for ever', (ttlMs) => {
  const build = () => cached(toolset('web', []), ttlMs as number);
  expect(build).toThrow(expect.objectContaining({ code: 'CONFIGURATION', message: expect.stringContaining('a time') }));
});

test('a function that renames to no text is named', async () => {
  const set = renamed(toolset('web', [tool('search')]), () => undefined as never);
  await expect(resolveToolsets([set], nobody)).rejects.toThrow('undefined cannot be the name of a tool');
});
