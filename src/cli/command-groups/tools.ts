/** The commands below `tools`. Each loads the module of its work when it runs. */
import type { Command } from 'commander';
import { MAX_CONCURRENCY } from '../../shared/tools/tool.ts';
import { type Action, command, commandGroup, countBetween, jsonOption } from '../command-options.ts';

const importMcpModule = () => import('../commands/import-mcp.ts');
const registryModule = () => import('../commands/registry.ts');
const toolsModule = () => import('../commands/tools.ts');

export function toolCommands(program: Command, runs: Action): void {
  const tools = commandGroup(program, 'tools', 'list and describe the fleet’s tools', [
    'pawl tools',
    'pawl tools show shell',
  ]);
  const ls = command(tools, 'ls', 'list the tools that workers offer', ['pawl tools ls --json']);
  jsonOption(ls.option('--session <key>', 'only tools that a session may call')).action(runs(toolsModule, 'listTools'));
  const show = command(tools, 'show', 'describe a tool and its parameters', ['pawl tools show shell']);
  jsonOption(show.argument('<name>')).action(runs(toolsModule, 'showTool'));
  const importMcp = command(tools, 'import-mcp', 'declare the tools of an MCP server', [
    'pawl tools import-mcp files --folder /data -- node /opt/mcp/server-filesystem/dist/index.js /data',
    'pawl tools import-mcp tracker --url https://mcp.example.com/mcp --header "Authorization: env:TRACKER_TOKEN"',
    'pawl tools import-mcp files --accept',
  ])
    .argument('<name>', 'local name of the server: its tools are mcp.NAME.…')
    .argument('[command...]', 'the program and its arguments, after --')
    .option('--url <url>', 'a server over streamable HTTP, in place of a command')
    .option('--header <header...>', 'sent with each request: "Name: value", or "Name: env:VARIABLE" of the worker')
    .option('--env <variable...>', 'for the program: NAME=VALUE, or NAME for the worker’s own variable')
    .option('--folder <folder>', 'the one folder that the program may write to (default: one of its own)')
    .option('--network', 'let the program use the network')
    .option('--tier <tier>', 'tier of its tools (default: system)')
    .option('--read-only <tool...>', 'tools, as the server calls them, that only read')
    .option('--only <tool...>', 'import these alone')
    .option('--trust-annotations', 'trust its annotations of tools that only read or may be repeated')
    .option('--accept', 'accept what has changed since it was imported');
  jsonOption(importMcp).action(runs(importMcpModule, 'importMcp'));
  registryCommands(tools, runs);
}

/** Those that change what all may call. */
function registryCommands(tools: Command, runs: Action): void {
  const add = command(tools, 'add', 'declare tools, or replace their declarations', ['pawl tools add weather.json'])
    .argument('<file>', 'JSON or YAML: one declaration, or a list of them')
    .option('--name <name>', 'name of the tool, if the file has none');
  jsonOption(add).action(runs(registryModule, 'addTools'));
  jsonOption(command(tools, 'rm', 'remove a declared tool', ['pawl tools rm weather']).argument('<name>')).action(
    runs(registryModule, 'removeTool'),
  );
  for (const enabled of [true, false]) {
    const [word, description] = enabled
      ? ['enable', 'let a disabled tool be called again']
      : ['disable', 'refuse all calls of a tool, also queued ones'];
    jsonOption(command(tools, word, description, [`pawl tools ${word} weather`]).argument('<name>')).action(
      runs(registryModule, 'switchTool', enabled),
    );
  }
  const openApi = command(tools, 'import-openapi', 'declare a connector for each operation of an OpenAPI document', [
    'pawl tools import-openapi github.yaml --tag issues --read-only',
    'pawl tools import-openapi shop.json --secret apiKey=env:PAWL_SECRET_SHOP --per-second 20',
  ])
    .argument('<file>', 'JSON or YAML, OpenAPI 3.0 to 3.2')
    .option('--namespace <name>', 'namespace of the tools (default: from the title)')
    .option('--server <url>', 'base of all addresses (default: the first server of the document)')
    .option('--tag <tag...>', 'only operations with one of these tags')
    .option('--operation <id...>', 'only these operations: an operationId, or "GET /path"')
    .option('--read-only', 'only GET and HEAD')
    .option(
      '--secret <scheme=source...>',
      'secret of a security scheme: SCHEME=env:NAME, =file:/path or =exec:/program',
    )
    .option('--concurrency <n>', 'requests at a time, over the whole fleet', countBetween(1, MAX_CONCURRENCY))
    .option('--per-second <n>', 'requests in a second, over the whole fleet', countBetween(1, MAX_CONCURRENCY))
    .option('--dry-run', 'print what would be declared');
  jsonOption(openApi).action(runs(registryModule, 'importOpenApiFile'));
}
