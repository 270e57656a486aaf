/**
 * Sessions form a tree; a session's kind decides which capabilities its calls get (A9, A17, A18).
 */
import { z } from 'zod';
import { type Capability, TIERS, type Tier } from './tool.ts';

export const SESSION_KINDS = ['main', 'branch', 'worker'] as const;
export type SessionKind = (typeof SESSION_KINDS)[number];

/**
 * The availability matrix of A17, by capability: a worker session reads, searches and fetches, and changes nothing.
 * A branch reaches people through its parent's channel (A19).
 */
export const SESSION_CAPABILITIES: Readonly<Record<SessionKind, readonly Capability[]>> = {
  main: ['workspace:read', 'workspace:write', 'processes', 'memory:search', 'memory:store', 'channel', 'network'],
  branch: ['workspace:read', 'workspace:write', 'processes', 'memory:search', 'memory:store', 'channel', 'network'],
  worker: ['workspace:read', 'memory:search', 'network'],
};

/** Tiers whose tools a session of this kind may call: a worker session has no business with tools that change things. */
export const SESSION_TIERS: Readonly<Record<SessionKind, readonly Tier[]>> = {
  main: TIERS,
  branch: TIERS,
  worker: ['read-only'],
};

export const channelSchema = z.looseObject({ kind: z.enum(['console', 'operator', 'webhook']) });

/** What `POST /v1/sessions` and `openSession` take. */
export const openSessionSchema = z.strictObject({
  kind: z.enum(SESSION_KINDS).default('main'),
  sessionKey: z.string().min(1).max(256).optional(),
  parent: z.string().min(1).max(256).optional(),
  agentId: z.string().min(1).max(256).optional(),
  actorId: z.string().min(1).max(256).optional(),
  tenantId: z.string().min(1).max(256).optional(),
  workspaceRoot: z.string().min(1).max(4_096).optional(),
  channel: channelSchema.optional(),
  skills: z.array(z.string().min(1).max(256)).max(64).optional(),
  budget: z.record(z.string(), z.number()).optional(),
});
export type OpenSession = z.input<typeof openSessionSchema>;

/** A session as stored. All but `state` never changes after opening. */
export interface SessionRecord {
  readonly sessionKey: string;
  readonly kind: SessionKind;
  readonly state: 'open' | 'closed';
  readonly parent?: string;
  readonly agentId?: string;
  readonly actorId: string;
  readonly tenantId?: string;
  readonly workspaceRoot: string;
  readonly channel?: z.output<typeof channelSchema>;
  readonly skills?: readonly string[];
  readonly budget?: Readonly<Record<string, number>>;
  readonly createdAtMs: number;
}
