/** The published tools, each with the reason if it is disabled. */
import type { Settings } from '../../shared/config/config.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import type { CatalogueContent } from '../../shared/store/fleet/catalogue.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import type { Registry } from './registry.ts';

/** The parts of the producer that know which tools there are. */
interface ToolSource {
  readonly settings: Settings;
  readonly registry: Pick<Registry, 'list'>;
  catalogue(sessionKey?: string): Promise<CatalogueContent>;
}

export type SwitchedTool = CatalogueContent['tools'][number] & {
  /** The reason why the tool is disabled, if it is. */
  readonly off?: 'registry' | 'configuration';
};

/** All tools, or those that a session may call. */
export async function switchedTools(source: ToolSource, sessionKey?: string): Promise<SwitchedTool[]> {
  const [{ tools }, records] = await Promise.all([source.catalogue(sessionKey), source.registry.list()]);
  const off = new Set(records.filter(({ enabled }) => !enabled).map(qualifiedName));
  return tools.map((tool) => {
    if (toolPolicy(source.settings, tool).enabled === false) return { ...tool, off: 'configuration' };
    return off.has(qualifiedName(tool)) ? { ...tool, off: 'registry' } : tool;
  });
}
