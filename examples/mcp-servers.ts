// Another program's MCP tools become tools of the fleet: imported once, pinned, and called like any other.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { connect, startWorker } from 'pawl';

const folder = realpathSync(mkdtempSync(join(tmpdir(), 'pawl-example-')));
writeFileSync(join(folder, 'note.txt'), 'buy tea');
const require = createRequire(import.meta.url);
const server = join(dirname(require.resolve('@modelcontextprotocol/server-filesystem/package.json')), 'dist/index.js');
const worker = await startWorker({ tools: [], tiers: ['read-only', 'system'] });
const pawl = await connect();

// As an operator does on the command line: `pawl tools import-mcp files --folder … --read-only … -- node … FOLDER`.
const pawlCommand = fileURLToPath(new URL('../bin/pawl.mjs', import.meta.url));
const operatorSays = ['--folder', folder, '--read-only', 'read_text_file', '--only', 'read_text_file', 'write_file'];
const args = ['tools', 'import-mcp', 'files', ...operatorSays, '--', process.execPath, server, folder];
const declared = execFileSync(process.execPath, [pawlCommand, ...args], { encoding: 'utf8' });
for (const line of declared.trim().split('\n').slice(1)) console.log(line.split(/ +/).slice(0, 3).join(' '));

const session = await pawl.openSession({ actorId: 'ada' });
const call = (tool: string, params: Record<string, unknown>) => session.call(tool, params, { namespace: 'mcp.files' });
const path = join(folder, 'note.txt');
const note = await call('read_text_file', { path });
const { content, metadata } = note.output ?? {};
console.log(`read: ${JSON.stringify(content)}, tainted ${metadata?.['tainted']}`);
const wrong = await call('write_file', { path });
console.log(`without content: ${wrong.error?.code}`);

await pawl.close();
await worker.close();
rmSync(folder, { recursive: true, force: true });
