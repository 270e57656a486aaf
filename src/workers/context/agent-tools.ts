/** The tools that an agent's session may call, by the catalogue, the registry and the worker's policy. */
import type { Settings } from '../../shared/config/config.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import { isOutOfReach } from '../../shared/policy/policy.ts';
import type { ToolPolicyRecord } from '../../shared/policy/policy-file.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { PublishedTool } from '../../shared/store/fleet/catalogue.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import type { AgentTool } from '../../shared/tools/tool-context.ts';
import { compareVersions } from '../../shared/tools/versions.ts';

/** Returns the newest version of each tool, sorted by name. */
export async function toolsForAgent(
  session: SessionRecord,
  catalogue: readonly PublishedTool[],
  policies: {
    readonly settings: Settings;
    toolPolicyFor(tool: PublishedTool): ToolPolicyRecord | undefined | Promise<ToolPolicyRecord | undefined>;
  },
): Promise<readonly AgentTool[]> {
  const { settings, toolPolicyFor } = policies;
  const newest = new Map<string, PublishedTool>();
  for (const published of catalogue) {
    const previous = newest.get(qualifiedName(published));
    if (previous === undefined || compareVersions(previous.version, published.version) < 0)
      newest.set(qualifiedName(published), published);
  }
  const tools: AgentTool[] = [];
  for (const [, tool] of [...newest].sort(([one], [other]) => (one < other ? -1 : 1))) {
    const registry = await toolPolicyFor(tool);
    const { policy } = settings;
    if (isOutOfReach({ tool, session, toolPolicy: toolPolicy(settings, tool), policy, registry })) continue;
    const { name, namespace, version, description, tier, inputSchema } = tool;
    // A copy: the schema serves other calls as well.
    tools.push({ name, namespace, version, description, tier, inputSchema: structuredClone(inputSchema) });
  }
  return tools;
}
