/** MCP servers whose lists and greetings are odd: what can be read of them is used, and the rest is named. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { contentOf } from '../../helpers/fleet.ts';
import { startMcpFleet } from './mcp-rig.ts';

test('an odd entry in a list of tools is named, and hides no other', async () => {
  const fleet = await startMcpFleet();
  const good = {
    name: 'echo',
    title: null,
    description: null,
    annotations: null,
    outputSchema: null,
    execution: null,
    icons: null,
    _meta: null,
    inputSchema: { type: 'object' },
  };
  const odd = [null, 5, 'echo', [], {}, { name: null }, { name: 7, inputSchema: {} }, { name: '', inputSchema: {} }];
  const deep = { name: 'deep', inputSchema: JSON.parse(`${'{"not":'.repeat(300)}{}${'}'.repeat(300)}`) };
  const schemas = ['{}', [{}], true, 5].map((inputSchema, index) => ({ name: `schema-${index}`, inputSchema }));
  await writeFile(join(fleet.folder, 'definitions.json'), JSON.stringify([...odd, good, deep, ...schemas, good]));
  const outcome = await fleet.bring('odd', fleet.odd());
  expect(outcome.tools.map(({ tool }) => tool)).toEqual(['mcp.odd.echo']);
  expect(outcome.refused).toEqual([
    ...odd.map((_, index) => ({ tool: `entry ${index + 1}`, why: expect.stringMatching(/^it is /) })),
    { tool: 'deep', why: 'its definition is nested too deep' },
    ...schemas.map(({ name }) => ({ tool: name, why: expect.stringMatching(/^its inputSchema is /) })),
  ]);
  expect(contentOf(await fleet.session.call('echo', { text: 'a' }, { namespace: 'mcp.odd' }))).toBe('a');
});

test('an odd entry in a list of resources or in what one holds is named, and hides no other', async () => {
  const fleet = await startMcpFleet();
  const environment = { CAPABILITIES: '{"resources":{}}' };
  const listed = [null, 5, {}, { uri: null, name: 'a' }, { uri: 'file:///a', name: null, mimeType: null, title: null }];
  await writeFile(
    join(fleet.folder, 'resources.json'),
    JSON.stringify({ resources: listed, nextCursor: null, _meta: null }),
  );
  const contents = [null, { uri: 'file:///a', text: 'A', mimeType: null, _meta: null }, { uri: null, text: 'B' }];
  await writeFile(join(fleet.folder, 'contents.json'), JSON.stringify({ contents }));
  await fleet.bring('odd', fleet.odd({ environment }));
  expect(contentOf(await fleet.session.call('list_mcp_resources', {}))).toEqual({
    resources: [{ server: 'odd', uri: 'file:///a', name: 'file:///a' }],
    leftOut: [1, 2, 3, 4].map((entry) => `entry ${entry} of odd has no uri`),
  });
  expect(contentOf(await fleet.session.call('read_mcp_resource', { server: 'odd', uri: 'file:///a' }))).toMatchObject({
    contents: [
      { uri: 'file:///a', text: expect.stringContaining('left out') },
      { uri: 'file:///a', text: 'A' },
      { uri: 'file:///a', text: 'B' },
    ],
  });
});

test.each([
  [
    'null for all that it may leave out',
    { instructions: null, serverInfo: { name: 'odd', version: '1', title: null } },
  ],
  ['nothing of itself', { serverInfo: null, capabilities: null, protocolVersion: null }],
  ['no version of itself', { serverInfo: { name: 'odd' } }],
  ['a version that is a number', { serverInfo: { name: null, version: 2 } }],
  ['capabilities that are no objects', { capabilities: { tools: true, logging: null, prompts: false } }],
])('a server that greets with %s offers its tools', async (_what, greeting) => {
  const fleet = await startMcpFleet();
  const environment = { GREETING: JSON.stringify(greeting) };
  await fleet.bring('odd', fleet.odd({ environment }), { readOnly: ['echo'] });
  expect(contentOf(await fleet.session.call('echo', { text: 'a' }, { namespace: 'mcp.odd' }))).toBe('a');
});

test('a tool whose name holds half a character is left out and named, and no two tools share a name', async () => {
  const fleet = await startMcpFleet({ workers: 0 });
  const definitions = ['half\ud83d', 'half\ud83e', 'whole🎉', 'echo'].map((name) => ({ name, inputSchema: {} }));
  await writeFile(join(fleet.folder, 'definitions.json'), JSON.stringify(definitions));
  const outcome = await fleet.bring('odd', fleet.odd());
  expect(outcome.tools.map(({ tool }) => tool)).toEqual(['mcp.odd.whole__', 'mcp.odd.echo']);
  expect(outcome.refused.map(({ why }) => why)).toEqual(Array(2).fill('its name holds half a character'));
  expect(await fleet.bring('odd')).toMatchObject({ state: 'declared' });
});

test('a server that declares no changes is heard when it reports one all the same, as FastMCP does', async () => {
  const fleet = await startMcpFleet();
  const environment = { CAPABILITIES: '{"tools":{"listChanged":false}}' };
  await fleet.bring('odd', fleet.odd({ environment }));
  const call = (name: string) => fleet.session.call(name, {}, { namespace: 'mcp.odd' });
  expect(contentOf(await call('arguments'))).toBe('[]');
  const changed = [{ name: 'changes', description: 'Does changes.', inputSchema: { type: 'object' } }];
  await writeFile(join(fleet.folder, 'definitions.json'), JSON.stringify(changed));
  expect(contentOf(await call('changes'))).toBe('changed');
  expect((await call('arguments')).error).toMatchObject({ code: 'DEFINITION_CHANGED' });
});
