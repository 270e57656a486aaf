/** The tools that a session sees: those that policy allows, selected by the program's toolsets. */
import type { Settings } from '../../shared/config/config.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import { isOutOfReach } from '../../shared/policy/policy.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { CatalogueContent, PublishedTool } from '../../shared/store/fleet/catalogue.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { resolveToolsets, type Toolset } from '../../shared/tools/toolset.ts';
import type { ToolCatalogue } from './tool-catalogue.ts';

/** For whom tools are listed: a session, or any session of a kind. */
export type ToolViewer = SessionRecord | (Pick<SessionRecord, 'kind'> & Partial<Omit<SessionRecord, 'sessionKey'>>);

interface SessionToolsDeps {
  readonly settings: Settings;
  readonly catalogue: Pick<ToolCatalogue, 'all' | 'current' | 'toolPolicyFor'>;
  /** Default: all tools that a session may call. */
  readonly toolsets?: readonly Toolset<PublishedTool>[];
}

export class SessionTools {
  readonly #deps: SessionToolsDeps;

  constructor(deps: SessionToolsDeps) {
    this.#deps = deps;
  }

  /** The catalogue, with the tools that a session may call. */
  async contentFor(session: SessionRecord): Promise<CatalogueContent> {
    const { settings, catalogue } = this.#deps;
    const content = await catalogue.all(settings.toolWaitMs);
    const tools = content.tools.filter((tool) => this.#mayCall(session, tool));
    return { ...content, tools: await this.#showByToolsets(tools, session) };
  }

  /** The tools that a session may call, one of each name. */
  async publishedFor(viewer: ToolViewer): Promise<readonly PublishedTool[]> {
    const { settings, catalogue } = this.#deps;
    const tools = (await catalogue.current(settings.toolWaitMs)).filter((tool) => this.#mayCall(viewer, tool));
    return this.#showByToolsets(tools, 'sessionKey' in viewer ? viewer : undefined);
  }

  /** Whether policy allows the viewer any call of the tool. A closed session shows the tools that it had. */
  #mayCall({ state, ...viewer }: ToolViewer, tool: PublishedTool): boolean {
    const { settings, catalogue } = this.#deps;
    return !isOutOfReach({
      tool,
      session: state === undefined || state === 'closed' ? viewer : { ...viewer, state },
      toolPolicy: toolPolicy(settings, tool),
      policy: settings.policy,
      registry: catalogue.toolPolicyFor(tool),
    });
  }

  /** The tools that toolsets choose, in the toolsets' order. */
  async #showByToolsets<Tool extends PublishedTool>(
    tools: readonly Tool[],
    session?: SessionRecord,
  ): Promise<readonly Tool[]> {
    const { toolsets } = this.#deps;
    if (toolsets === undefined) return tools;
    // A toolset gets one tool of each name. It may answer from a cache, so tools that the session may not call now are left out.
    const byName = Map.groupBy(tools, qualifiedName);
    const request = { published: [...byName.values()].flatMap(([first]) => first ?? []) };
    const chosen = await resolveToolsets(toolsets, session === undefined ? request : { ...request, session });
    return chosen.flatMap((tool) => byName.get(qualifiedName(tool)) ?? []);
  }
}
