/** The tools of a journey, which plans book. */
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { bookTool } from '../../helpers/book-tool.ts';
import { signal } from '../../helpers/signal.ts';

export function journeyTools() {
  const log: string[] = [];
  const gate = signal();
  const cities = defineTool({
    name: 'cities',
    version: '1.0.0',
    description: 'Cities.',
    tier: 'read-only',
    input: z.object({}),
    output: z.object({ list: z.array(z.object({ name: z.string() })), home: z.string() }),
    run: () => ({ output: { list: [{ name: 'Paris' }, { name: 'Oslo' }], home: 'Bern' } }),
  });
  const book = bookTool(log);
  const wait = defineTool({
    name: 'wait',
    version: '1.0.0',
    description: 'Waits.',
    tier: 'read-only',
    input: z.object({}),
    run: async (_params, ctx) => {
      log.push('wait');
      await Promise.race([gate.promise, new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))]);
      ctx.signal.throwIfAborted();
      return { output: 'waited' };
    },
  });
  return { tools: [cities, book, wait], book, log, gate };
}
