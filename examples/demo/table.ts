/**
 * The output of the demo: a table with one row per call. On a terminal the rows of running calls are live; in a pipe each row is
 * one plain line, written when its call has ended; with `json` each call is one line of JSON.
 */
export interface RowEnd {
  /** `ok`, or in one word how the call ended. */
  readonly word: string;
  /** False for an error; the error may be just what was expected. */
  readonly isSuccess: boolean;
  /** The numbers of the workers that ran the call, in order; empty when nothing ran. */
  readonly workers: readonly (number | undefined)[];
  readonly attempts: number;
  readonly durationMs: number;
  /** The explanation of the result, in plain words. */
  readonly text: string;
  /** For `json` only. */
  readonly facts: Readonly<Record<string, unknown>>;
}

export interface Row {
  /** Shows a text while the call runs. */
  update(text: string): void;
  end(end: RowEnd): void;
  /** The call did not end as it should. */
  wrong(text: string): void;
}

export interface TableOptions {
  readonly out: NodeJS.WriteStream;
  readonly json: boolean;
  readonly environment: NodeJS.ProcessEnv;
}

type Style = 'bold' | 'dim' | 'green' | 'yellow' | 'red' | 'cyan';
const CODES: Readonly<Record<Style, number>> = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 };
const COLUMNS = { tool: 12, word: 9, workers: 7, tries: 5, time: 8 } as const;
const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'] as const;
const FRAME_MS = 100;

interface LiveRow {
  readonly tool: string;
  readonly startedAtMs: number;
  text: string;
}

export class Table {
  readonly #options: TableOptions;
  readonly #isLive: boolean;
  readonly #hasColours: boolean;
  readonly #live = new Set<LiveRow>();
  #chapter = '';
  #drawnLines = 0;
  #isClosed = false;
  #frame = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: TableOptions) {
    this.#options = options;
    const { out, json, environment } = options;
    const isTerminal = out.isTTY === true && environment['TERM'] !== 'dumb';
    this.#isLive = isTerminal && !json;
    this.#hasColours = isTerminal && !json && (environment['NO_COLOR'] ?? '') === '';
  }

  /** A line between the rows. */
  note(text: string): void {
    if (this.#options.json || this.#isClosed) return;
    this.#print(this.#indented('', text, 'dim'));
  }

  /** A line outside of the table. */
  line(text = ''): void {
    if (!this.#options.json) this.#print(text);
  }

  chapter(number: number, title: string): void {
    this.#chapter = title;
    if (this.#options.json) return;
    this.#print('');
    this.#print(this.#styled(`${number}. ${title}`, 'bold'));
  }

  head(): void {
    if (this.#options.json) return;
    const { tool, word, workers, tries, time } = COLUMNS;
    const names = [
      'call'.padEnd(tool),
      'ended'.padEnd(word),
      'worker'.padEnd(workers),
      'tries'.padStart(tries),
      'took'.padStart(time),
    ];
    this.#print(this.#styled(`  ${names.join(' ')}  what happened, and why`, 'dim'));
  }

  /** A call that begins now. */
  row(tool: string, text: string): Row {
    const live: LiveRow = { tool, text, startedAtMs: performance.now() };
    this.#live.add(live);
    this.#animate();
    return {
      update: (newText) => {
        live.text = newText;
      },
      end: (end) => {
        this.#live.delete(live);
        if (!this.#isClosed) this.#ended(tool, end);
      },
      wrong: (wrongText) => {
        this.#live.delete(live);
        if (this.#isClosed) return;
        if (this.#options.json)
          this.object({ type: 'call', chapter: this.#chapter, tool, asExpected: false, text: wrongText });
        else this.#print(this.#indented(`  ${tool.padEnd(COLUMNS.tool)} ${this.#styled('WRONG', 'red')}  `, wrongText));
      },
    };
  }

  #ended(tool: string, end: RowEnd): void {
    const { word, isSuccess, workers, attempts, durationMs, text, facts } = end;
    if (this.#options.json) {
      this.object({ type: 'call', chapter: this.#chapter, tool, asExpected: true, ...facts, workers, text });
      return;
    }
    const cells = [
      this.#styled(tool.padEnd(COLUMNS.tool), 'cyan'),
      this.#styled(word.padEnd(COLUMNS.word), isSuccess ? 'green' : 'yellow'),
      (workers.length === 0 ? '-' : workers.map((number) => number ?? '?').join('>')).padEnd(COLUMNS.workers),
      (attempts === 0 ? '-' : String(attempts)).padStart(COLUMNS.tries),
      duration(durationMs).padStart(COLUMNS.time),
    ];
    this.#print(this.#indented(`  ${cells.join(' ')}  `, text));
  }

  /** One line of JSON. */
  object(value: object): void {
    this.#options.out.write(`${JSON.stringify(value)}\n`);
  }

  /** Ends the table: rows that are still running leave it, and none is added. */
  close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#erase();
    this.#live.clear();
    this.#isClosed = true;
  }

  #print(line: string): void {
    this.#erase();
    this.#options.out.write(`${line}\n`);
    this.#draw();
  }

  /** Wraps the text of a row below itself, on a terminal only: a line in a pipe stays one line. */
  #indented(prefix: string, text: string, style?: Style): string {
    const { tool, word, workers, tries, time } = COLUMNS;
    const indent = prefix === '' ? 2 : tool + word + workers + tries + time + 8;
    const head = prefix === '' ? '  ' : prefix;
    const width = this.#isLive ? Math.max(30, (this.#options.out.columns || 80) - indent) : Number.POSITIVE_INFINITY;
    const lines = wrap(text, width).map((line) => (style === undefined ? line : this.#styled(line, style)));
    return head + lines.join(`\n${' '.repeat(indent)}`);
  }

  #styled(text: string, style: Style): string {
    return this.#hasColours ? `\u001b[${CODES[style]}m${text}\u001b[0m` : text;
  }

  #animate(): void {
    if (!this.#isLive || this.#isClosed || this.#timer !== undefined) return;
    this.#timer = setInterval(() => {
      this.#frame += 1;
      this.#erase();
      this.#draw();
    }, FRAME_MS);
    this.#timer.unref();
  }

  #draw(): void {
    if (!this.#isLive) return;
    const width = (this.#options.out.columns || 80) - 1;
    for (const { tool, text, startedAtMs } of this.#live) {
      const frame = FRAMES[this.#frame % FRAMES.length] ?? '';
      const seconds = ((performance.now() - startedAtMs) / 1_000).toFixed(1);
      this.#options.out.write(`${`${frame} ${tool.padEnd(COLUMNS.tool)} ${seconds} s  ${text}`.slice(0, width)}\n`);
      this.#drawnLines += 1;
    }
  }

  #erase(): void {
    if (this.#drawnLines > 0) this.#options.out.write(`\u001b[${this.#drawnLines}A\u001b[0J`);
    this.#drawnLines = 0;
  }
}

function duration(durationMs: number): string {
  if (durationMs < 10) return `${durationMs.toFixed(1)} ms`;
  return durationMs < 1_000 ? `${Math.round(durationMs)} ms` : `${(durationMs / 1_000).toFixed(1)} s`;
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line];
}
