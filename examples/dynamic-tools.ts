// A program that is no worker runs a tool by itself: an editor, say, that opens files for an agent.
import { connect, startWorker } from 'pawl';

const worker = await startWorker({ tools: [], tiers: ['system'] });
const editor = await connect();
const serving = await editor.serveTools([
  {
    name: 'open_file',
    version: '1.0.0',
    description: 'Opens a file in the editor of the person who asked.',
    inputSchema: { type: 'object', properties: { file: { type: 'string' } }, required: ['file'] },
    run: ({ file }, call) => {
      call.progress({ progress: 1, message: `opening ${file}` });
      return { output: { opened: file }, display: `${file} is open` };
    },
  },
]);

const agent = await connect();
const session = await agent.openSession({ actorId: 'ada' });
const opened = await session.call('open_file', { file: 'notes.md' });
console.log(`open_file: ${opened.status}, ${opened.output?.metadata?.['display']}`);
const wrong = await session.call('open_file', { path: 'notes.md' });
console.log(`with other parameters: ${wrong.error?.code}`);

await serving.close();
const gone = await session.call('open_file', { file: 'notes.md' });
console.log(`without the editor: ${gone.error?.code}`);

await agent.close();
await editor.close();
await worker.close();
