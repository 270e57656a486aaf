/** Checks an approver's decision: the tool must not have changed since, and policy must allow edited parameters. */
import type { ApprovalRequest, ApprovalRoute } from '../../shared/approvals/approval.ts';
import { planOf } from '../../shared/approvals/plan-approval.ts';
import type { Settings } from '../../shared/config/config.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import { ignoreCode, PawlError } from '../../shared/errors/failure.ts';
import { requirePermission } from '../../shared/policy/policy.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { ResolvedTool, ToolCatalogue } from '../tools/tool-catalogue.ts';

export type Params = Readonly<Record<string, unknown>>;

interface EditedParamsDeps {
  readonly settings: Settings;
  readonly catalogue: Pick<ToolCatalogue, 'peek' | 'find'> & Partial<Pick<ToolCatalogue, 'toolPolicyFor'>>;
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  routeOf(session: SessionRecord): Promise<ApprovalRoute | undefined>;
}

export class EditedParams {
  readonly #deps: EditedParamsDeps;

  constructor(deps: EditedParamsDeps) {
    this.#deps = deps;
  }

  /** Returns the edited parameters after their checks; undefined when there are none. */
  async check(request: ApprovalRequest, params: Params | undefined): Promise<Params | undefined> {
    if (request.plan !== undefined) return this.#checkPlan(request, params);
    const { catalogue } = this.#deps;
    const { namespace, name } = request.tool;
    // A process that has just started, such as a command, has not read the catalogue yet.
    const tool =
      params === undefined
        ? catalogue.peek(namespace, name)
        : await catalogue.find(namespace, name).catch(ignoreCode('UNKNOWN_TOOL'));
    if (tool !== undefined && tool.definition !== request.tool.definition)
      throw new PawlError('APPROVAL_STALE', `${request.tool.name} has changed since this approval was asked for.`);
    if (params === undefined) return undefined;
    if (tool === undefined)
      throw new PawlError('APPROVAL_STALE', `No worker offers ${request.tool.name} now, so its parameters stay.`);
    const issues = await tool.validate(params);
    if (issues.length === 0) {
      await this.#permitEdited(request, tool, params);
      return params;
    }
    const listed = issues.map(({ path, message }) => `${path}: ${message}`).join('; ');
    throw new PawlError('INVALID_PARAMS', `The edited parameters of ${tool.name} are not valid: ${listed}.`, {
      issues,
    });
  }

  /**
   * Policy is checked before the decision, so that the person can still correct it; the worker would end the call. Throws
   * `PERMISSION_DENIED`.
   */
  async #permitEdited({ session: { key }, taint }: ApprovalRequest, tool: ResolvedTool, params: Params): Promise<void> {
    const { settings, catalogue, sessionOf, routeOf } = this.#deps;
    const session = await sessionOf(key);
    if (session === undefined) return;
    requirePermission({
      tool,
      session: { ...session, state: undefined },
      toolPolicy: toolPolicy(settings, tool),
      policy: settings.policy,
      registry: catalogue.toolPolicyFor?.(tool),
      channel: (await routeOf(session))?.channel.kind,
      params,
      taint,
      sandbox: settings.sandbox,
    });
  }

  /** A plan cannot be edited. */
  #checkPlan(request: ApprovalRequest, params: Params | undefined): undefined {
    if (params !== undefined)
      throw new PawlError(
        'INVALID_PARAMS',
        'A plan is approved as it was shown: deny it, and submit another plan instead of editing this one.',
        { issues: [{ path: '', message: 'must not be given for a plan' }] },
      );
    for (const [node, { namespace, tool, definition }] of Object.entries(planOf(request).nodes))
      if ((this.#deps.catalogue.peek(namespace, tool)?.definition ?? definition) !== definition)
        throw new PawlError(
          'APPROVAL_STALE',
          `${tool} of the node ${node} has changed since this approval was asked for.`,
        );
  }
}
