/**
 * What must be found again later: who asked, who decided, what ran under an approval, and what was refused because somebody tried
 * to get around that. One narrow seam: every part of Pawl tells its events to one `RecordAudit`.
 */
export type AuditEvent =
  | {
      readonly type: 'approval-requested';
      readonly approvalId: string;
      readonly callId: string;
      readonly tool: string;
      readonly sessionKey: string;
      readonly actorId: string;
      readonly digest: string;
      readonly rule: string;
    }
  | {
      readonly type: 'approval-decided';
      readonly approvalId: string;
      readonly callId: string;
      readonly tool: string;
      readonly sessionKey: string;
      readonly state: 'approved' | 'denied' | 'expired';
      readonly digest: string;
      readonly by?: string;
      readonly reason?: string;
      /** The approver has changed the parameters. */
      readonly edited: boolean;
    }
  /** The tool is about to run under an approval. */
  | {
      readonly type: 'approval-used';
      readonly approvalId: string;
      readonly callId: string;
      readonly tool: string;
      readonly sessionKey: string;
      readonly by: string;
      readonly fence: number;
      readonly worker: string;
    }
  | RegistryChange
  /** Something that nobody with a key wrote, or that was used already: it had no effect. */
  | {
      readonly type: 'refused';
      readonly what:
        | 'request'
        | 'outcome'
        | 'approval'
        | 'decision'
        | 'session'
        | 'grant'
        | 'replay'
        | 'job'
        | 'spec'
        | 'message';
      readonly callId?: string;
      readonly sessionKey?: string;
      readonly reason: string;
    };

/** A tool was declared, changed, switched or removed (I7). */
export interface RegistryChange {
  readonly type: 'registry-changed';
  /** `namespace.name`. */
  readonly tool: string;
  readonly kind: string;
  readonly action: 'declared' | 'changed' | 'enabled' | 'disabled' | 'removed' | 'rolled-back';
  readonly revision: number;
  readonly by: string;
}

/** Never throws and is not awaited, but for `approval-used`: whoever cannot write that down must not run the tool. */
export type RecordAudit = (event: AuditEvent) => void | Promise<void>;
