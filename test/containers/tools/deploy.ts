import { defineTool } from 'pawl';
import { z } from 'zod';

/** What a person decides on. */
export const deploy = defineTool({
  name: 'deploy',
  version: '1.0.0',
  description: 'Puts a release into production.',
  tier: 'elevated',
  input: z.object({ release: z.string() }),
  run: ({ release }) => ({ output: { release }, display: `${release} is out` }),
});
