/** A worker with the fixture tools. Prints `ready`. */
import { z } from 'zod';
import { defineTool, startWorker } from '../../src/index.ts';
import { fixtureTools } from './tools.ts';

/** Changes what the fleet offers: a second worker comes with a tool of its own, and goes. */
const trigger = defineTool({
  name: 'test_trigger_tool_change',
  version: '1.0.0',
  description: 'Changes the list of tools.',
  tier: 'workspace',
  effects: 'idempotent',
  input: z.object({}),
  async run() {
    const newcomer = defineTool({
      name: 'newcomer',
      version: '1.0.0',
      description: 'Comes and goes.',
      tier: 'read-only',
      input: z.object({}),
      run: () => ({ output: null }),
    });
    const worker = await startWorker({ tools: [newcomer] });
    await worker.close();
    return { output: { content: [{ type: 'text', text: 'tools_list_changed published' }] } };
  },
});

const worker = await startWorker({ tools: [...fixtureTools, trigger], concurrency: 16 });
console.log('ready');
process.on('SIGTERM', () => void worker.close(0).then(() => process.exit(0)));
