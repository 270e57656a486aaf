/** The properties of a failure code. */

export type FailureClass =
  | 'request'
  | 'permission'
  | 'conflict'
  | 'transport'
  | 'throttle'
  | 'server'
  | 'caller'
  | 'timeout'
  | 'cancelled'
  | 'tool'
  | 'result'
  | 'lost'
  | 'circuit'
  | 'backend';

export interface FailureKind {
  readonly class: FailureClass;
  /** Another attempt could succeed. Whether it may be made depends on the tool's effects too (`retry.ts`). */
  readonly retriable: boolean;
  /** The failure proves that no effect took place, so that even a `once` tool may run again. */
  readonly nothingHappened: boolean;
  readonly againstCircuit: boolean;
  /** The text for the model and the caller, when the tool gave no message of its own. */
  readonly sentence: string;
  /** The text for the person on call. */
  readonly operator: string;
}

/** The properties that a row names when they hold. */
type Trait = 'retriable' | 'nothingHappened' | 'againstCircuit';

/** Builds a row of the catalogue. A trait that is not listed is false. */
export const kind = (
  failureClass: FailureClass,
  traits: readonly Trait[],
  sentence: string,
  operator: string,
): FailureKind => ({
  class: failureClass,
  retriable: traits.includes('retriable'),
  nothingHappened: traits.includes('nothingHappened'),
  againstCircuit: traits.includes('againstCircuit'),
  sentence,
  operator,
});

/** A row of a failure before anything happened, which another attempt would meet again. */
export const refused = (failureClass: FailureClass, sentence: string, operator: string): FailureKind =>
  kind(failureClass, ['nothingHappened'], sentence, operator);

/** A row of a service that was not reached, so that nothing happened. */
export const notReached = (sentence: string, operator: string): FailureKind =>
  kind('transport', ['retriable', 'nothingHappened', 'againstCircuit'], sentence, operator);

/** A row of a service that failed and may have done something. */
export const serverFailed = (sentence: string, operator: string): FailureKind =>
  kind('server', ['retriable', 'againstCircuit'], sentence, operator);
