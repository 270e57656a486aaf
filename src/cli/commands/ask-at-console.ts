/** The console channel: the person at the terminal of `pawl call` sees the request of an approval, and may decide on it there. */
import type { Interface } from 'node:readline/promises';
import type { ApprovalListing } from '../../producer/approvals/approvals.ts';
import type { Pawl } from '../../producer/client.ts';
import { approvalView } from '../../producer/http/core/views.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { type CliContext, say } from '../context.ts';
import { duration } from '../print.ts';
import { decide, describe } from './approvals.ts';

/** The approval may be decided elsewhere, so it is read this often while the terminal is asked. */
const LOOK_EVERY_MS = 1_000;
const QUESTION = 'Approve this call? y, or n and a reason: ';

export interface ConsoleQuestion {
  /** Aborted when the call has ended, so that there is nothing left to decide. */
  readonly signal: AbortSignal;
  /** Called on Ctrl-C, which raises no signal while the terminal is asked. */
  interrupt(): void;
}

/** Resolves when the approval is decided, here or elsewhere, or the call has ended. Without a terminal it only says how to decide. */
export async function askAtConsole(
  context: CliContext,
  pawl: Pick<Pawl, 'approvals'>,
  approvalId: string,
  { signal, interrupt }: ConsoleQuestion,
): Promise<void> {
  const shown = await pawl.approvals.show(approvalId);
  const instructions = `pawl approvals show ${approvalId}; then approve or deny it`;
  if (!context.input.isTTY) {
    const { request } = shown.record;
    say(context, `waits for a person, at most ${duration(request.expiresAtMs - request.createdAtMs)}: ${instructions}`);
    return;
  }
  const { createInterface } = await import('node:readline/promises');
  if (signal.aborted) return;
  context.err.write(`${describe(shown)}\n`);
  const terminal = createInterface({ input: context.input, output: context.err });
  const question = new TerminalQuestion(context, terminal);
  signal.addEventListener('abort', question.cancel);
  terminal.on('SIGINT', () => {
    question.cancel();
    interrupt();
  });
  const look = setInterval(() => void cancelWhenDecided(context, pawl, approvalId, question), LOOK_EVERY_MS);
  try {
    const answer = await question.ask();
    if (answer === 'closed') say(context, `not decided: ${instructions}`);
    else if (answer !== 'cancelled') await decideBy(answer.text, pawl, shown);
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    say(context, error.message);
  } finally {
    clearInterval(look);
    terminal.close();
  }
}

class TerminalQuestion {
  readonly #context: CliContext;
  readonly #terminal: Interface;
  readonly #over = new AbortController();
  isOpen = true;

  constructor(context: CliContext, terminal: Interface) {
    this.#context = context;
    this.#terminal = terminal;
  }

  /** Asks once. `closed`: the person closed the input with Ctrl-D. */
  async ask(): Promise<{ readonly text: string } | 'cancelled' | 'closed'> {
    try {
      const text = (await this.#terminal.question(QUESTION, { signal: this.#over.signal })).trim();
      this.isOpen = false;
      return { text };
    } catch (error) {
      if (!(error instanceof Error) || error.name !== 'AbortError') throw error;
      if (!this.isOpen) return 'cancelled';
      this.cancel();
      return 'closed';
    }
  }

  readonly cancel = (): void => {
    // The question's line is ended, so that further output begins on a line of its own.
    if (this.isOpen) this.#context.err.write('\n');
    this.isOpen = false;
    this.#over.abort();
  };
}

async function cancelWhenDecided(
  context: CliContext,
  pawl: Pick<Pawl, 'approvals'>,
  approvalId: string,
  question: TerminalQuestion,
): Promise<void> {
  // While Redis is out of reach, the state of the approval is not known.
  const approval = await pawl.approvals.show(approvalId).catch(() => undefined);
  if (approval === undefined || approval.record.state === 'pending' || !question.isOpen) return;
  question.cancel();
  const { state, decidedBy } = approvalView(approval);
  say(context, `decided elsewhere: ${state}${decidedBy === undefined ? '' : ` by ${decidedBy}`}`);
}

async function decideBy(answer: string, pawl: Pick<Pawl, 'approvals'>, shown: ApprovalListing): Promise<void> {
  const yes = /^y(?:es)?$/i.test(answer);
  const reason = answer.replace(/^no?\b\s*/i, '');
  await decide(pawl, shown, {
    decision: yes ? 'approve' : 'deny',
    digest: shown.digest,
    ...(yes || reason === '' ? {} : { reason }),
  });
}
