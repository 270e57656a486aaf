import type { Hook } from '../calls/define-hook.ts';
import { Hooks } from '../calls/hooks.ts';
import type { Schedule } from '../util/time.ts';
import type { Logger } from './log.ts';

/** The hooks of a process, whose failures are logged. */
export function loggedHooks(hooks: readonly Hook[] | undefined, log: Logger, schedule: Schedule): Hooks {
  const onFailure = (hook: string, kind: string, error: string) =>
    log.warn({ event: 'hook_failed', hook, kind, error }, 'a hook failed');
  return new Hooks(hooks ?? [], { schedule, onFailure });
}
