/** The agent of a session, as the opener of the session describes it. The description informs tools; only policy decides. */
import { z } from 'zod';
import { identifierSchema } from '../calls/envelope.ts';
import type { SessionAgent } from '../tools/tool-context.ts';
import { defined } from '../util/json/omit-undefined.ts';

const MAX_PERMISSIONS_LENGTH = 4_096;
const text = z.string().min(1).max(256);

export const sessionAgentSchema = z.strictObject({
  /** Default: the session's `agentId`. */
  id: identifierSchema.optional(),
  /** The name for people. Default: the ID. */
  name: text.optional(),
  model: text.optional(),
  /** Permissions in the agent program's own terms: names, or an object. */
  permissions: z
    .union([z.array(text), z.record(text, z.json())])
    .refine((permissions) => JSON.stringify(permissions).length <= MAX_PERMISSIONS_LENGTH, {
      error: `must be at most ${MAX_PERMISSIONS_LENGTH} characters of JSON`,
    })
    .optional(),
});

type AgentDescription = z.output<typeof sessionAgentSchema>;

/** The agent of a session that names an `agentId`, describes one, or both; undefined for a session without an agent. */
export function sessionAgent(
  agentId: string | undefined,
  description: AgentDescription | undefined,
): SessionAgent | undefined {
  const { id = agentId, name, model, permissions } = description ?? {};
  if (id === undefined) return undefined;
  return {
    id,
    name: name ?? id,
    ...defined({ model, permissions }),
  };
}
