/** A pair of terminal ends: one for the program, one for us. Prebuilt native code, an optional dependency. */
import { closeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { ReadStream } from 'node:tty';
import { PawlError } from '../../shared/failure.ts';

const COLUMNS = 120;
const ROWS = 40;

export interface PseudoTerminal {
  /** What the program writes, and where its input is written. Ends, or fails with EIO, when no program has the other end. */
  readonly stream: ReadStream;
  /** The program's end, a descriptor of this process until it is released. */
  readonly programEnd: number;
  releaseProgramEnd(): void;
}

interface Binding {
  open(columns: number, rows: number): { readonly master: number; readonly slave: number };
}

// The package's own `open` reads from both ends, and would take the program's input.
const require = createRequire(import.meta.url);

/** Throws `CONFIGURATION` where the native part is not installed. */
export function openPseudoTerminal(): PseudoTerminal {
  const { master, slave } = binding().open(COLUMNS, ROWS);
  return {
    stream: new ReadStream(master),
    programEnd: slave,
    releaseProgramEnd: () => closeSync(slave),
  };
}

function binding(): Binding {
  try {
    const { requireBinary } = require('@lydell/node-pty/requireBinary.js') as {
      requireBinary(file: string): Binding;
    };
    return requireBinary('pty.node');
  } catch (error) {
    throw new PawlError(
      'CONFIGURATION',
      'This worker has no terminals: install @lydell/node-pty beside Pawl, or run the command with tty: false.',
      { cause: error },
    );
  }
}
