import { describe, expect, onTestFinished, test } from 'vitest';
import { ToolCatalogue } from '../../../src/producer/tools/tool-catalogue.ts';
import { Signatures } from '../../../src/shared/signing/signatures.ts';
import { DeclaredToolRecords } from '../../../src/shared/store/connectors/declared-tools.ts';
import { Catalogue, publishedTool, publishedToolId } from '../../../src/shared/store/fleet/catalogue.ts';
import type { AnyTool } from '../../../src/shared/tools/tool.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { echo } from '../../helpers/tools.ts';
import { openBooks } from '../../shared/store/calls.ts';

async function open(afterRead: () => Promise<void> = async () => {}) {
  const { redis, world, ledger } = await openBooks();
  const catalogue = new Catalogue(redis, world.prefix);
  const read = catalogue.read.bind(catalogue);
  catalogue.read = async () => {
    const content = await read();
    await afterRead();
    return content;
  };
  const offers = new ToolCatalogue(catalogue, new DeclaredToolRecords(redis, world.prefix, new Signatures()), () => {});
  onTestFinished(() => offers.close());
  const publishAgo = async (ms: number, ...tools: AnyTool[]) => {
    const seenAtMs = (await ledger.now()) - ms;
    await catalogue.publish(tools.map((tool) => publishedTool(tool, seenAtMs)));
  };
  const publish = (...tools: AnyTool[]) => publishAgo(0, ...tools);
  const work = (id: string, ...tools: AnyTool[]) =>
    catalogue.beat({
      id,
      host: 'here',
      pid: 1,
      tiers: ['read-only'],
      concurrency: 1,
      running: 0,
      tools: tools.map(publishedToolId),
      startedAtMs: 0,
      pawlVersion: 'test',
    });
  return { offers, publish, publishAgo, work };
}

const version = (text: string): AnyTool => ({ ...echo, version: text });

describe('tools as producers know them', () => {
  test('a tool is read once, then known without asking, with its schema compiled', async () => {
    const { offers, publish } = await open();
    await publish(echo);
    expect(offers.peek('tools', 'echo')).toBeUndefined();
    const found = await offers.find('tools', 'echo');
    expect(found).toMatchObject({ name: 'echo', tier: 'read-only', effects: 'none' });
    expect(found.validate({ text: 'x' })).toEqual([]);
    expect(offers.peek('tools', 'echo')).toBe(found);
  });

  test('a tool that is published later is found', async () => {
    const { offers, publish } = await open();
    await expect(offers.find('tools', 'echo')).rejects.toThrow('No worker has published a tool yet: is one running?');
    await publish(echo);
    expect((await eventually(() => offers.find('tools', 'echo'))).name).toBe('echo');
  });

  test('a list shows what was published before it was asked for, also while an older read is in progress', async () => {
    const answered = signal();
    const released = signal();
    const { offers, publish } = await open(async () => {
      answered.fire();
      await released.promise;
    });
    const older = offers.all();
    await answered.promise;
    await publish(echo);
    const newer = offers.all();
    released.fire();
    expect((await older).tools).toEqual([]);
    expect((await newer).tools).toMatchObject([{ name: 'echo' }]);
  });

  test('a tool that is published right after the catalogue was read is found', async () => {
    const { offers, publish } = await open();
    await expect(offers.find('tools', 'echo')).rejects.toMatchObject({ code: 'UNKNOWN_TOOL' });
    await publish(echo);
    const found = await Promise.all([offers.find('tools', 'echo'), offers.find('tools', 'echo')]);
    expect(found).toMatchObject([{ name: 'echo' }, { name: 'echo' }]);
  });

  test('an unknown name is answered with the nearest ones, or with those there are', async () => {
    const { offers, publish } = await open();
    await publish(echo, { ...echo, name: 'shell', namespace: 'ops' });
    await expect(offers.find('tools', 'ecko')).rejects.toMatchObject({
      code: 'UNKNOWN_TOOL',
      message: expect.stringContaining('Did you mean echo?'),
      details: { suggestions: ['echo'] },
    });
    await expect(offers.find('tools', 'shell')).rejects.toThrow('Did you mean ops.shell?');
    await expect(offers.find('tools', 'ops.shell')).rejects.toThrow('Call "shell" in namespace "ops".');
    await expect(offers.find('tools', 'xyzzyq')).rejects.toThrow('Known tools: echo, ops.shell.');
  });

  test.each([
    ['the newest version', ['1.2.0', '1.10.0', '1.9.9'], '1.10.0'],
    ['a release before its pre-release', ['2.0.0-beta.1', '2.0.0'], '2.0.0'],
  ])('of several versions %s is called', async (_which, versions, expected) => {
    const { offers, publish } = await open();
    await publish(...versions.map(version));
    expect((await offers.find('tools', 'echo')).version).toBe(expected);
  });

  test('a version that a living worker runs comes before a newer one that none runs', async () => {
    const { offers, publish, work } = await open();
    await publish(version('1.0.0'), version('2.0.0'));
    await work('one', version('1.0.0'));
    expect((await offers.all()).tools.map((tool) => tool.version)).toEqual(['1.0.0', '2.0.0']);
    expect((await offers.find('tools', 'echo')).version).toBe('1.0.0');
    await work('two', version('2.0.0'));
    const { tools } = await offers.all();
    expect(offers.peek('tools', 'echo')?.version).toBe('2.0.0');
    expect(tools.map((tool) => tool.version)).toEqual(['2.0.0', '1.0.0']);
  });

  test('a tool that its tier’s workers have not had for long, such as one that was renamed, is shown to no session', async () => {
    const { offers, publish, publishAgo, work } = await open();
    await publish(echo);
    await publishAgo(50_000, { ...echo, name: 'restarting' });
    await publishAgo(70_000, { ...echo, name: 'renamed' });
    const shown = async () => (await offers.current(60_000)).map(({ name }) => name).sort();
    expect(await shown(), 'nobody serves the tier: whoever does next may have it').toEqual([
      'echo',
      'renamed',
      'restarting',
    ]);
    await work('one', echo);
    expect(await shown()).toEqual(['echo', 'restarting']);
    expect((await offers.all(60_000)).tools).toHaveLength(2);
    expect((await offers.all()).tools).toHaveLength(3);
  });
});
