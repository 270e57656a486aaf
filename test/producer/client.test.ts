import { describe, expect, test } from 'vitest';
import { pending, startFleet } from '../helpers/fleet.ts';
import { echo, scripted } from '../helpers/tools.ts';

describe('connections', () => {
  test('a closed client refuses, and closing twice is fine', async () => {
    const { session, pawl } = await startFleet({ tools: [echo], workers: 0 });
    let hasEnded = false;
    void pawl.close().then(() => {
      hasEnded = true;
    });
    await pawl.close();
    expect(hasEnded).toBe(true);
    await expect(session.call(echo, { text: 'x' })).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    await expect(pawl.openSession()).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
  });

  test('a client and a worker end with the block that holds them (`await using`)', async () => {
    const fleet = await startFleet({ tools: [echo], workers: 0 });
    const [client, ran] = [await fleet.openProducer(), await fleet.startWorker()];
    {
      await using pawl = client;
      await using _worker = ran;
      const session = await pawl.openSession();
      expect((await session.call(echo, { text: 'x' })).status).toBe('success');
    }
    await expect(client.openSession()).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    expect((await fleet.pawl.catalogue()).workers).toEqual([]);
  });

  test('the catalogue of a session holds what it may call', async () => {
    const note = scripted('note', () => ({ output: null })).tool;
    const { session, pawl } = await startFleet({ tools: [echo, note], workers: 0 });
    const names = async (key?: string) => (await pawl.catalogue(key)).tools.map(({ name }) => name).sort();
    expect(await names()).toEqual(['echo', 'note']);
    expect(await names((await session.worker()).key)).toEqual(['echo']);
  });
});

test('an envelope is submitted with its parameters as they are then, whatever becomes of them meanwhile', async () => {
  const { tool, contexts } = scripted('keep', () => ({ output: 'kept' }));
  const ran: unknown[] = [];
  const fleet = await startFleet({
    tools: [
      {
        ...tool,
        run: (params, context) => {
          ran.push(params);
          return tool.run(params, context);
        },
      },
    ],
  });
  const envelope = fleet.session.envelope(tool, { nested: { list: [1] } });
  const handed = fleet.pawl.submit(envelope);
  (envelope.payload.params as { readonly nested: { readonly list: number[] } }).nested.list.push(2);
  expect(await pending(await handed).result).toMatchObject({ status: 'success' });
  expect(ran).toEqual([{ nested: { list: [1] } }]);
  expect(contexts).toHaveLength(1);
});
