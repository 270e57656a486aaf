/** A pair of terminal ends: one for the program, one for this worker. It needs prebuilt native code, an optional dependency. */
import { closeSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Writable } from 'node:stream';
import { ReadStream } from 'node:tty';
import { missingPackages } from '../../shared/errors/optional-packages.ts';

const COLUMNS = 120;
const ROWS = 40;
/** The delay before the rest of a partial write is tried again. No event reports that the program has read. */
const RETRY_WRITE_MS = 10;

interface PseudoTerminal {
  /** The program's output. It ends, or fails with EIO, when no program holds the other end. */
  readonly output: ReadStream;
  /** The program's input. Ending it ends the whole terminal. */
  readonly input: Writable;
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
  const output = new ReadStream(master);
  return {
    output,
    input: nonBlockingInput(output, master),
    programEnd: slave,
    releaseProgramEnd: () => closeSync(slave),
  };
}

/**
 * The stream's own write blocks the whole worker until the program reads. This one writes what the terminal accepts
 * and tries the rest later. The descriptor belongs to the output, and is never used after that has been destroyed.
 */
function nonBlockingInput(output: ReadStream, master: number): Writable {
  let retryTimer: NodeJS.Timeout | undefined;
  const writeChunk = (chunk: Buffer, done: () => void): void => {
    let written: number;
    try {
      written = output.destroyed ? chunk.length : writeSync(master, chunk);
    } catch (error) {
      // An ended program reads no input, so the rest is dropped.
      written = (error as NodeJS.ErrnoException).code === 'EAGAIN' ? 0 : chunk.length;
    }
    if (written === chunk.length) done();
    else retryTimer = setTimeout(writeChunk, RETRY_WRITE_MS, chunk.subarray(written), done);
  };
  return new Writable({
    write: (chunk: Buffer, _encoding, done) => writeChunk(chunk, done),
    destroy(error, done) {
      clearTimeout(retryTimer);
      output.destroy();
      done(error);
    },
  });
}

function binding(): Binding {
  try {
    const { requireBinary } = require('@lydell/node-pty/requireBinary.js') as {
      requireBinary(file: string): Binding;
    };
    return requireBinary('pty.node');
  } catch (error) {
    throw missingPackages('terminals', error, 'use tty: false');
  }
}
