import { z } from 'zod';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import type { Tier } from '../../src/shared/tools/tool.ts';

/** A tool that books in a city and can undo it. It writes both to a log. There is no city `Nowhere`. */
export function bookTool(log: string[], tier: Tier = 'system') {
  return defineTool({
    name: 'book',
    version: '1.0.0',
    description: 'Books.',
    tier,
    effects: 'idempotent',
    input: z.object({ city: z.string(), seat: z.number().optional(), note: z.unknown().optional() }),
    output: z.object({ reservation: z.string() }),
    run: ({ city, note }) => {
      if (city === 'Nowhere') throw Object.assign(new Error('no such city'), { status: 422 });
      log.push(`book ${city}${note === undefined ? '' : ` ${JSON.stringify(note)}`}`);
      return { output: { reservation: `${city}-1` } };
    },
    compensate: async ({ city }) => {
      log.push(`undo ${city}`);
    },
  });
}
