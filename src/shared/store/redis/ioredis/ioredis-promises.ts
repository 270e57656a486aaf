/**
 * Lets the garbage collector free commands of ioredis early. V8 allocates a closure that is created where it is assigned to a property
 * (`this.reject = (error) => …`) in its old space, as long as that code is not optimized. ioredis creates one for each command, so the
 * command's arguments and answer would live until a full collection.
 */
import { Command } from 'ioredis';

/** The private members of a command that ioredis' own `initPromise` uses. */
interface Internals {
  readonly name: string;
  args: unknown[];
  readonly callback?: unknown;
  readonly errorStack?: unknown;
  transformed: boolean;
  isResolved: boolean;
  isSettled: boolean;
  promise: Promise<unknown>;
  resolve: unknown;
  reject: unknown;
  initPromise(): void;
  stringifyArguments(): void;
  _convertValue(resolve: (value: unknown) => void): unknown;
  _clearTimers(): void;
}

type Transformers = Readonly<Record<string, ((args: unknown[]) => unknown[]) | undefined>>;

const prototype = Command.prototype as unknown as Internals;
const { argument: transformers } = (
  Command as unknown as { readonly _transformer: { readonly argument: Transformers } }
)._transformer;
const { initPromise } = prototype;

/** Does the same as ioredis' method, and creates each function before it is assigned to a property. */
function initCollectablePromise(this: Internals): void {
  if (this.callback !== undefined || this.errorStack !== undefined) {
    initPromise.call(this);
    return;
  }
  this.isResolved = false;
  this.isSettled = false;
  this.promise = new Promise((resolve, reject) => {
    if (!this.transformed) {
      this.transformed = true;
      this.args = transformers[this.name]?.(this.args) ?? this.args;
      this.stringifyArguments();
    }
    this.resolve = this._convertValue(resolve);
    this.reject = createReject(this, reject);
  });
}

function createReject(command: Internals, reject: (error: unknown) => void): (error: unknown) => void {
  return (error) => {
    command._clearTimers();
    command.isSettled = true;
    reject(error);
  };
}

prototype.initPromise = initCollectablePromise;
