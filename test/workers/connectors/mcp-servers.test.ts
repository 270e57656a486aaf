import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { describe, expect, inject, test } from 'vitest';
import type { McpConnectionOptions } from '../../../src/shared/connectors/mcp-routing.ts';
import { contentOf } from '../../helpers/fleet.ts';
import { startMcpFleet, temporaryFolder } from './mcp-rig.ts';

const require = createRequire(import.meta.url);

/** The official servers run in the sandbox, where one works. */
const settings = { sandbox: inject('sandbox') };

function official(
  name: string,
  args: readonly string[],
  more: Partial<McpConnectionOptions> = {},
): McpConnectionOptions {
  const folder = dirname(require.resolve(`@modelcontextprotocol/server-${name}/package.json`));
  const command = [process.execPath, join(folder, 'dist/index.js'), ...args];
  return { transport: 'stdio', command, environment: {}, network: false, ...more } as McpConnectionOptions;
}

describe('the official servers', () => {
  test('filesystem: tools are qualified by server, of the tier that policy says, and confined to their folder', async () => {
    const fleet = await startMcpFleet({ settings });
    const folder = await temporaryFolder();
    const outcome = await fleet.bring('files', official('filesystem', [folder], { folder }), {
      readOnly: ['read_text_file', 'list_directory'],
    });
    expect(outcome.state).toBe('declared');
    expect(outcome.refused).toEqual([]);
    const tiers = Object.fromEntries(outcome.tools.map(({ tool, tier, effects }) => [tool, `${tier} ${effects}`]));
    expect(tiers).toMatchObject({
      'mcp.files.read_text_file': 'read-only none',
      // The server's claim that a tool is read-only is not trusted without the operator's approval.
      'mcp.files.search_files': 'system once',
      'mcp.files.write_file': 'system once',
    });
    const { session } = fleet;
    const call = (name: string, params: object) =>
      session.call(name, params as Record<string, unknown>, { namespace: 'mcp.files' });
    const path = join(folder, 'note.txt');
    expect(await call('write_file', { path, content: 'hello' })).toMatchObject({ status: 'success', attempts: 1 });
    expect(await readFile(path, 'utf8')).toBe('hello');
    expect(contentOf(await call('read_text_file', { path }))).toEqual({ content: 'hello' });
    const outside = await call('read_text_file', { path: '/etc/hostname' });
    expect(outside).toMatchObject({ status: 'error', error: { code: 'MCP_TOOL_ERROR' } });
    expect(outside.error?.message).toContain('outside allowed directories');
    expect((await call('read_text_file', { path: 7 })).error?.code).toBe('INVALID_PARAMS');
  });

  test('memory: one call finds what another one stored', async () => {
    const fleet = await startMcpFleet({ settings });
    const folder = await temporaryFolder();
    const environment = { MEMORY_FILE_PATH: join(folder, 'memory.json') };
    await fleet.bring('memory', official('memory', [], { folder, environment }));
    const entities = [{ name: 'Ada', entityType: 'person', observations: ['writes programs'] }];
    expect((await fleet.session.call('create_entities', { entities }, { namespace: 'mcp.memory' })).status).toBe(
      'success',
    );
    expect(
      contentOf(await fleet.session.call('search_nodes', { query: 'programs' }, { namespace: 'mcp.memory' })),
    ).toMatchObject({
      entities,
    });
  });

  test('everything: text, structure, pictures, progress, resources', async () => {
    const fleet = await startMcpFleet({ settings });
    const outcome = await fleet.bring('everything', official('everything', []));
    expect(outcome).toMatchObject({ state: 'declared', resources: true });
    // The tool answers with tasks of an older kind only.
    expect(outcome.refused).toMatchObject([{ tool: 'simulate-research-query' }]);
    const { session } = fleet;
    expect(contentOf(await session.call('echo', { message: 'hi' }, { namespace: 'mcp.everything' }))).toBe('Echo: hi');
    expect(
      contentOf(
        await session.call('get-structured-content', { location: 'New York' }, { namespace: 'mcp.everything' }),
      ),
    ).toMatchObject({
      temperature: expect.any(Number),
    });
    const image = await session.call('get-tiny-image', {}, { namespace: 'mcp.everything' });
    expect(image).toMatchObject({
      status: 'success',
      output: {
        metadata: {
          tainted: true,
          content: expect.arrayContaining([expect.objectContaining({ type: 'image', mimeType: 'image/png' })]),
        },
      },
    });
    const progress: number[] = [];
    session.events.on('progress', (event) => progress.push(event.progress));
    await session.call('trigger-long-running-operation', { duration: 0.5, steps: 2 }, { namespace: 'mcp.everything' });
    expect(progress.at(-1)).toBe(2);

    const listed = contentOf(await session.call('list_mcp_resources', {})) as {
      resources: { server: string; uri: string }[];
    };
    expect(listed.resources[0]).toMatchObject({
      server: 'everything',
      uri: expect.any(String),
      name: expect.any(String),
    });
    const [{ uri = '' } = {}] = listed.resources;
    expect(contentOf(await session.call('read_mcp_resource', { server: 'everything', uri }))).toMatchObject({
      server: 'everything',
      uri,
      contents: [{ uri, text: expect.any(String) }],
    });
    expect(contentOf(await session.call('list_mcp_resource_templates', { server: 'everything' }))).toMatchObject({
      resourceTemplates: [{ server: 'everything', uriTemplate: expect.any(String) }, expect.anything()],
    });
    expect((await session.call('read_mcp_resource', { server: 'nobody', uri })).error?.code).toBe('INVALID_PARAMS');
  });
});
