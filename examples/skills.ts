// A skill is a SKILL.md: instructions for the model, and the tools that a session with it may see.
import { fileURLToPath } from 'node:url';
import { baseTools, connect, startWorker } from 'pawl';

const folder = fileURLToPath(new URL('./skills', import.meta.url));
const worker = await startWorker({ tools: baseTools });
const pawl = await connect({ skillFolders: [folder] });

const [skill] = await pawl.skills.triggeredBy('Please find out what this program does.');
console.log(`for this task: ${skill?.name}, "${skill?.instructions.split('.')[0]}"`);

const session = await pawl.openSession({ skills: ['research'], workspaceRoot: folder });
const { tools } = await pawl.catalogue(session.key);
console.log(
  `its tools: ${tools
    .map(({ name }) => name)
    .sort()
    .join(', ')}`,
);

const read = await session.call('read', { path: 'research/SKILL.md', limit: 2 });
console.log(`read: ${read.status}`);
const shell = await session.call('shell', { command: ['ls'] });
console.log(`shell: ${shell.error?.code}`);

await pawl.close();
await worker.close();
