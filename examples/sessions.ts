/** Sessions form a tree. A branch may do what its parent may; a worker session reads, and changes nothing. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { baseTools, connect, startWorker } from 'pawl';

const folder = await mkdtemp(join(tmpdir(), 'pawl-example-'));
const worker = await startWorker({ tools: baseTools }); // read, write, edit, shell and more
const pawl = await connect();
const main = await pawl.openSession({ kind: 'main', actorId: 'ada', workspaceRoot: folder });
const branch = await main.branch();
const helper = await branch.worker();

const written = await branch.call('write', { path: 'notes.txt', content: 'from the branch\n' });
console.log(`the branch writes: ${written.status}`);
const seen = await helper.call('read', { path: 'notes.txt' });
console.log(`the worker session reads what it wrote: ${seen.status}`);
const refused = await helper.call('write', { path: 'notes.txt', content: 'no\n' });
console.log(`the worker session writes: ${refused.error?.code}`);
const outside = await main.call('read', { path: '../outside.txt' });
console.log(`outside of the workspace: ${outside.error?.code}`);

await main.close(); // with all that is below
const closed = await helper.call('read', { path: 'notes.txt' });
console.log(`after the main session was closed: ${closed.error?.code}`);

await pawl.close();
await worker.close();
await rm(folder, { recursive: true });
