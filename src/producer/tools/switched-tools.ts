/** What workers offer, with what has switched it off. */
import { toolPolicy } from '../../shared/config/config.ts';
import type { CatalogueContent } from '../../shared/store/fleet/catalogue.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import type { Pawl } from '../client.ts';

export type SwitchedTool = CatalogueContent['tools'][number] & {
  /** What has switched it off, if anything has. */
  readonly off?: 'registry' | 'configuration';
};

/** All of them, or those that a session may call. */
export async function switchedTools(pawl: Pawl, sessionKey?: string): Promise<SwitchedTool[]> {
  const [{ tools }, records] = await Promise.all([pawl.catalogue(sessionKey), pawl.registry.list()]);
  const off = new Set(records.filter(({ enabled }) => !enabled).map(qualifiedName));
  return tools.map((tool) => {
    if (toolPolicy(pawl.settings, tool).enabled === false) return { ...tool, off: 'configuration' };
    return off.has(qualifiedName(tool)) ? { ...tool, off: 'registry' } : tool;
  });
}
