/** `pawl tools`: what the fleet's workers offer. */

import { toolView } from '../producer/http/views.ts';
import { PawlError } from '../shared/failure.ts';
import { nearest } from '../shared/schema.ts';
import type { CatalogueContent } from '../shared/store/catalogue.ts';
import { DEFAULT_NAMESPACE, qualifiedName } from '../shared/tool.ts';
import { type CliContext, print, say, withPawl } from './context.ts';
import { EXIT_CODES } from './exit-codes.ts';
import { type Column, json, table } from './print.ts';

type Offer = CatalogueContent['tools'][number];

const COLUMNS: readonly Column<Offer>[] = [
  { title: 'TOOL', text: shortName },
  { title: 'VERSION', text: ({ version }) => version },
  { title: 'TIER', text: ({ tier }) => tier },
  { title: 'EFFECTS', text: ({ effects }) => effects },
  { title: 'WORKERS', align: 'right', text: ({ workers }) => String(workers) },
  { title: 'DESCRIPTION', text: ({ description }) => firstSentence(description) },
];

/** As `pawl call` takes it when the namespace is the usual one. */
function shortName(tool: Offer): string {
  return tool.namespace === DEFAULT_NAMESPACE ? tool.name : qualifiedName(tool);
}

function firstSentence(text: string): string {
  const sentence = /^.*?[.!?](?=\s|$)/s.exec(text)?.[0] ?? text;
  return sentence.length <= 80 ? sentence : `${sentence.slice(0, 79)}…`;
}

export async function listTools(context: CliContext, options: { session?: string; json?: boolean }): Promise<number> {
  return withPawl(context, async (pawl) => {
    const { tools } = await pawl.catalogue(options.session);
    const sorted = [...tools].sort((a, b) => (qualifiedName(a) < qualifiedName(b) ? -1 : 1));
    if (options.json === true) print(context, json({ tools: sorted.map(toolView) }));
    else if (sorted.length === 0)
      say(context, `no worker has published a tool: start one with 'pawl up' or 'pawl worker'`);
    else print(context, table(sorted, COLUMNS));
    return EXIT_CODES.success.code;
  });
}

export async function showTool(context: CliContext, name: string, options: { json?: boolean }): Promise<number> {
  return withPawl(context, async (pawl) => {
    const { tools } = await pawl.catalogue();
    const found = tools.filter((tool) => tool.name === name || qualifiedName(tool) === name);
    if (found.length === 0) throw unknownTool(name, tools);
    const [newest] = found.sort((a, b) => b.workers - a.workers || b.seenAtMs - a.seenAtMs);
    if (newest === undefined) throw unknownTool(name, tools);
    print(context, options.json === true ? json(toolView(newest)) : description(newest));
    return EXIT_CODES.success.code;
  });
}

function unknownTool(name: string, tools: readonly Offer[]): PawlError {
  const near = nearest(name, tools.map(shortName));
  const hint =
    near.length > 0
      ? `Did you mean ${near.join(' or ')}?`
      : tools.length === 0
        ? `No worker has published a tool: start one with 'pawl up' or 'pawl worker'.`
        : `Known tools: ${tools.map(shortName).join(', ')}.`;
  return new PawlError('UNKNOWN_TOOL', `There is no tool ${JSON.stringify(name)}. ${hint}`);
}

function description(tool: Offer): string {
  const hints = Object.entries(tool.annotations).filter(([, value]) => value === true);
  return [
    `${qualifiedName(tool)} ${tool.version}`,
    `  ${tool.description}`,
    `  tier      ${tool.tier}`,
    `  effects   ${tool.effects}`,
    `  time      ${tool.timeoutMs} ms for an attempt`,
    `  workers   ${tool.workers}`,
    ...(hints.length === 0 ? [] : [`  hints     ${hints.map(([hint]) => hint).join(', ')}`]),
    'parameters',
    json(tool.inputSchema),
    ...(tool.outputSchema === undefined ? [] : ['output', json(tool.outputSchema)]),
  ].join('\n');
}
