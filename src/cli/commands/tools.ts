/** `pawl tools`: the tools of the fleet's workers. */
import { switchedToolView } from '../../producer/http/core/views.ts';
import { type SwitchedTool, switchedTools } from '../../producer/tools/switched-tools.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { qualifiedName, shortName, toolNamed } from '../../shared/tools/tool.ts';
import { capitalized, didYouMean } from '../../shared/util/text/nearest.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { pawlCommand, printList, printResult } from '../context.ts';
import { block, type Column, prettyJson } from '../print.ts';

const COLUMNS: readonly Column<SwitchedTool>[] = [
  { title: 'TOOL', text: shortName },
  { title: 'VERSION', text: ({ version }) => version },
  { title: 'TIER', text: ({ tier }) => tier },
  { title: 'EFFECTS', text: ({ effects }) => effects },
  { title: 'SWITCH', text: ({ off }) => (off === undefined ? 'on' : 'off') },
  { title: 'WORKERS', align: 'right', text: ({ workers }) => String(workers) },
  { title: 'DESCRIPTION', text: ({ description }) => firstSentence(description) },
];

const SWITCH_ON_HINTS = {
  registry: (name: string) => `its calls are refused until 'pawl tools enable ${name}'`,
  configuration: (name: string) => `tools.${name}.enabled is false in pawl.config`,
} as const;

function firstSentence(text: string): string {
  const line = text.replace(/\s+/g, ' ');
  const sentence = /^.*?[.!?](?=\s|$)/.exec(line)?.[0] ?? line;
  return sentence.length <= 80 ? sentence : `${startOf(sentence, 79)}…`;
}

export const listTools = pawlCommand(async (context, pawl, options: { session?: string }) => {
  const tools = await switchedTools(pawl, options.session);
  // Declared tools come after those of workers.
  const rows = tools.toSorted((a, b) => qualifiedName(a).localeCompare(qualifiedName(b), 'en'));
  const none = `no worker has published a tool: start one with 'pawl up' or 'pawl worker'`;
  printList(context, { tools: rows.map(switchedToolView) }, { rows, columns: COLUMNS, none });
});

export const showTool = pawlCommand(async (context, pawl, name: string) => {
  const tools = await switchedTools(pawl);
  const tool = toolNamed(tools, name);
  if (tool === undefined) throw unknownTool(name, tools);
  printResult(context, switchedToolView(tool), describeTool(tool));
});

function unknownTool(name: string, tools: readonly SwitchedTool[]): PawlError {
  const names = [...new Set(tools.map(shortName))];
  const listed =
    names.length === 0
      ? `No worker has published a tool: start one with 'pawl up' or 'pawl worker'.`
      : `Known tools: ${names.toSorted().join(', ')}.`;
  const hint = capitalized(didYouMean(name, names)) || listed;
  return new PawlError('UNKNOWN_TOOL', `There is no tool ${JSON.stringify(name)}. ${hint}`);
}

function describeTool(tool: SwitchedTool): string {
  const hints = Object.entries(tool.annotations).filter(([, value]) => value === true);
  return [
    `${qualifiedName(tool)} ${tool.version}`,
    block(tool.description),
    `  tier      ${tool.tier}`,
    `  effects   ${tool.effects}`,
    `  time      ${tool.timeoutMs} ms for an attempt`,
    `  workers   ${tool.workers}`,
    ...(tool.off === undefined ? [] : [`  switch    off: ${SWITCH_ON_HINTS[tool.off](shortName(tool))}`]),
    ...(hints.length === 0 ? [] : [`  hints     ${hints.map(([hint]) => hint).join(', ')}`]),
    'parameters',
    prettyJson(tool.inputSchema),
    ...(tool.outputSchema === undefined ? [] : ['output', prettyJson(tool.outputSchema)]),
  ].join('\n');
}
