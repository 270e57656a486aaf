/** How commands show data to people: tables, times, JSON. */

export interface Column<Row> {
  readonly title: string;
  readonly align?: 'left' | 'right';
  text(row: Row): string;
}

/** Aligned columns under their titles, one line per row; the last column is not padded. */
export function table<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
  const cells = [
    columns.map(({ title }) => title),
    ...rows.map((row) => columns.map(({ text }) => oneLine(text(row)))),
  ];
  const widths = columns.map((_, index) => Math.max(...cells.map((line) => line[index]?.length ?? 0)));
  return cells
    .map((line) =>
      line
        .map((cell, index) => {
          const width = widths[index] ?? 0;
          return columns[index]?.align === 'right' ? cell.padStart(width) : cell.padEnd(width);
        })
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Control characters would let a name or a message move the cursor. */
export function oneLine(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, ' ');
}

/** Text of several lines, without the control characters that move a terminal's cursor or change its title. */
export function plainText(text: string): string {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, '');
}

/** A duration for people: `340 ms`, `2.4 s`, `5 min`, `3 h`, `2 d`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 48 * 3_600_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** A moment for people, in UTC. */
export function moment(atMs: number): string {
  return new Date(atMs).toISOString();
}

export function json(value: unknown): string {
  return JSON.stringify(value, null, 2);
}

/** `1 worker`, `2 workers`. */
export function count(number: number, noun: string, plural = `${noun}s`): string {
  return `${number} ${number === 1 ? noun : plural}`;
}
