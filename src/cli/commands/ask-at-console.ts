/** The console channel: the person at the terminal of `pawl call` sees the request of an approval, and may decide on it there. */
import type { Interface } from 'node:readline/promises';
import type { ApprovalListing } from '../../producer/approvals/approvals.ts';
import type { Pawl } from '../../producer/client.ts';
import { approvalView } from '../../producer/http/core/views.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { type CliContext, say } from '../context.ts';
import { duration } from '../print.ts';
import { decide, describeApproval } from './approvals.ts';

/** The interval at which the approval is read while the prompt waits: it may be decided elsewhere. */
const POLL_MS = 1_000;
const QUESTION = 'Approve this call? y, or n and a reason: ';

interface ConsoleQuestion {
  /** Aborted when the call has ended, which makes the decision obsolete. */
  readonly signal: AbortSignal;
  /** Called on Ctrl-C, which raises no signal while the prompt waits. */
  interrupt(): void;
}

/** Resolves when the approval is decided, here or elsewhere, or the call has ended. Without a terminal it only explains how to decide. */
export async function askAtConsole(
  context: CliContext,
  pawl: Pick<Pawl, 'approvals'>,
  approvalId: string,
  { signal, interrupt }: ConsoleQuestion,
): Promise<void> {
  const listing = await pawl.approvals.show(approvalId);
  const instructions = `pawl approvals show ${approvalId}; then approve or deny it`;
  if (!context.input.isTTY) {
    const { request } = listing.record;
    say(context, `waits for a person, at most ${duration(request.expiresAtMs - request.createdAtMs)}: ${instructions}`);
    return;
  }
  const { createInterface } = await import('node:readline/promises');
  if (signal.aborted) return;
  context.err.write(`${describeApproval(listing)}\n`);
  const terminal = createInterface({ input: context.input, output: context.err });
  const question = new TerminalQuestion(context, terminal);
  signal.addEventListener('abort', question.cancel);
  terminal.on('SIGINT', () => {
    question.cancel();
    interrupt();
  });
  const poll = setInterval(() => void cancelWhenDecided(context, pawl, approvalId, question), POLL_MS);
  try {
    const answer = await question.ask();
    if (answer === 'closed') say(context, `not decided: ${instructions}`);
    else if (answer !== 'cancelled') await applyAnswer(answer.text, pawl, listing);
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    say(context, error.message);
  } finally {
    clearInterval(poll);
    terminal.close();
  }
}

class TerminalQuestion {
  readonly #context: CliContext;
  readonly #terminal: Interface;
  readonly #abort = new AbortController();
  isOpen = true;

  constructor(context: CliContext, terminal: Interface) {
    this.#context = context;
    this.#terminal = terminal;
  }

  /** Asks once. `closed`: the person closed the input with Ctrl-D. */
  async ask(): Promise<{ readonly text: string } | 'cancelled' | 'closed'> {
    try {
      const text = (await this.#terminal.question(QUESTION, { signal: this.#abort.signal })).trim();
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
    this.#abort.abort();
  };
}

async function cancelWhenDecided(
  context: CliContext,
  pawl: Pick<Pawl, 'approvals'>,
  approvalId: string,
  question: TerminalQuestion,
): Promise<void> {
  // While Redis is out of reach, the state of the approval is unknown.
  const approval = await pawl.approvals.show(approvalId).catch(() => undefined);
  if (approval === undefined || approval.record.state === 'pending' || !question.isOpen) return;
  question.cancel();
  const { state, decidedBy } = approvalView(approval);
  say(context, `decided elsewhere: ${state}${decidedBy === undefined ? '' : ` by ${decidedBy}`}`);
}

async function applyAnswer(answer: string, pawl: Pick<Pawl, 'approvals'>, listing: ApprovalListing): Promise<void> {
  const isApproved = /^y(?:es)?$/i.test(answer);
  const reason = answer.replace(/^no?\b\s*/i, '');
  await decide(pawl, listing, {
    decision: isApproved ? 'approve' : 'deny',
    digest: listing.digest,
    ...(isApproved || reason === '' ? {} : { reason }),
  });
}
