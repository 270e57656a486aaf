/** Answers refused calls, and emits an event for each. */
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { refusal } from '../../shared/calls/outcome.ts';
import { isRefusalError, PawlError } from '../../shared/errors/failure.ts';
import { membersIn } from '../../shared/util/json/json-types.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import type { CircuitRefusal } from '../circuits/circuit-cache.ts';
import { circuitRefusalText } from '../circuits/circuit-check.ts';
import type { PassedCall } from './checked-call.ts';
import type { DispatchEvent, Submission } from './submission.ts';

export class CallRefusals {
  readonly #onEvent: (event: DispatchEvent) => void;

  constructor(onEvent: (event: DispatchEvent) => void) {
    this.#onEvent = onEvent;
  }

  /** Answers a call with the error that a step threw. Rethrows `BACKEND_UNAVAILABLE`, `CONFIGURATION` and defects. */
  answer(error: unknown, envelope: ToolCallEnvelope, callId?: string): Submission {
    const refused = asRefusal(error);
    this.#onEvent({ type: 'refused', envelope, code: refused.code, message: refused.message });
    const { requestId, toolName } = envelope;
    if (callId === undefined) return { kind: 'answered', result: refusal(refused, { requestId, toolName }) };
    return { kind: 'answered', callId, result: refusal(refused, { requestId, toolName, callId }) };
  }

  /** Answers a value that is not an envelope, with the names that can be read from it. */
  answerInvalid(error: unknown, value: unknown): Submission {
    const refused = asRefusal(error);
    this.#onEvent({ type: 'refused', code: refused.code, message: refused.message });
    return { kind: 'answered', result: refusal(refused, namesIn(value)) };
  }

  answerOpenCircuit({ envelope, tool, circuit }: PassedCall, open: CircuitRefusal): Submission {
    const error = {
      code: 'CIRCUIT_OPEN',
      message: circuitRefusalText(tool, circuit.key, open),
      details: { retryAfterMs: open.retryAfterMs },
    } as const;
    this.#onEvent({ type: 'refused', envelope, published: tool, code: error.code, message: error.message });
    const { requestId, toolName } = envelope;
    return { kind: 'answered', result: refusal(error, { requestId, toolName }, 'circuit_open', open.state) };
  }

  /** Reports that Redis did not answer for a call. Its caller gets the error itself. */
  reportUnanswered(error: unknown, envelope: ToolCallEnvelope): void {
    if (error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE')
      this.#onEvent({ type: 'refused', envelope, code: error.code, message: error.message });
  }
}

function asRefusal(error: unknown): PawlError {
  if (!isRefusalError(error) || error.code === 'CONFIGURATION') throw error;
  return error;
}

function namesIn(value: unknown): { requestId: string; toolName: string } {
  const { requestId, toolName } = membersIn(value);
  const text = (field: unknown) => (typeof field === 'string' ? startOf(field, 256) : '');
  return { requestId: text(requestId), toolName: text(toolName) };
}
