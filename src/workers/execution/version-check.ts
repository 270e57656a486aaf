/**
 * Checks whether this worker can run a call as its caller expects. Processes of several versions share one queue, and a worker skips
 * calls that it does not know.
 */
import { CONTRACT_VERSION } from '../../shared/calls/envelope.ts';
import type { StoredRequest } from '../../shared/store/calls/call-record.ts';
import { type CatalogueContent, publishedToolId, type WorkerRecord } from '../../shared/store/fleet/catalogue.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { isCompatibleVersion } from '../../shared/tools/versions.ts';
import type { RegisteredTool } from '../attempt/attempt-state.ts';

/** The reason why a worker must not run a call; undefined when it may. */
export function incompatibilityReason(
  request: StoredRequest,
  registered: RegisteredTool | undefined,
): string | undefined {
  const { envelope, tool } = request;
  if (envelope.contractVersion !== CONTRACT_VERSION)
    return `it follows contract ${String(envelope.contractVersion)}, and this worker knows ${CONTRACT_VERSION}`;
  const name = `${envelope.toolNamespace}.${envelope.toolName}`;
  if (registered === undefined) return `this worker does not have ${name}`;
  if (isCompatibleVersion(registered.tool.version, tool.version)) return undefined;
  return `it was validated against ${name}@${tool.version}, and this worker has ${registered.tool.version}`;
}

/** Whether the tool's definition is another one than the parameters were validated with. */
export function hasDrifted({ tool }: StoredRequest, registered: RegisteredTool): boolean {
  return tool.definition !== registered.definition;
}

/** The workers that can run a call, and when the fleet last could. */
export interface LastPublished {
  /** IDs of the living workers that can run the call. */
  readonly workers: readonly string[];
  /** When a matching published tool was last renewed. */
  readonly seenAtMs: number;
}

export function lastPublished({ tool, envelope }: StoredRequest, { tools, workers }: CatalogueContent): LastPublished {
  const name = `${envelope.toolNamespace}.${envelope.toolName}`;
  const fitting = tools.filter(
    (published) => qualifiedName(published) === name && isCompatibleVersion(published.version, tool.version),
  );
  const ids = new Set(fitting.map(publishedToolId));
  const publishesOneOf = (worker: WorkerRecord) => worker.tools.some((id) => ids.has(id));
  return {
    // Workers do not publish which contracts they know. A call of another contract is tried for as long as calls may wait.
    workers: envelope.contractVersion === CONTRACT_VERSION ? workers.filter(publishesOneOf).map(({ id }) => id) : [],
    seenAtMs: Math.max(0, ...fitting.map(({ seenAtMs }) => seenAtMs)),
  };
}
