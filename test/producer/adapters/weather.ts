/** The tool that scripted models call. */
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';

export const weather = () => {
  let runs = 0;
  const tool = defineTool({
    name: 'weather',
    version: '1.0.0',
    description: 'Current weather of a city.',
    tier: 'workspace',
    effects: 'idempotent',
    input: z.object({ city: z.string(), units: z.enum(['celsius', 'fahrenheit']).optional() }),
    run({ city, units = 'celsius' }, ctx) {
      runs += 1;
      ctx.progress({ progress: 1, total: 2, message: `asking for ${city}` });
      if (city === 'Atlantis') throw Object.assign(new Error('no such city'), { code: 'NOT_FOUND' });
      return { output: { city, degrees: 21, units } };
    },
  });
  return { tool, runs: () => runs };
};
