/** Formats data for people: tables, times, JSON. */
import { isObject } from '../shared/util/json/json-types.ts';
import { plural } from '../shared/util/text/plural.ts';
import { escapeInvisible, escapeJson, escapeLine } from '../shared/util/text/visible-text.ts';

export interface Column<Row> {
  readonly title: string;
  readonly align?: 'left' | 'right';
  text(row: Row): string;
}

/** Characters that take two columns of a terminal, of the scripts of East Asia and emoji. The narrow forms of some are left out. */
const WIDE =
  /[[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}\p{Script=Yi}\p{Emoji_Presentation}\u3000-\u303e\uff01-\uff60\uffe0-\uffe6]--[\uff61-\uffdc]]/gv;

/** The columns that a line takes in a terminal. Marks stand above or below the character before them. */
function displayWidth(line: string): number {
  const characters = line.replace(/\p{M}/gu, '');
  return [...characters].length + (characters.match(WIDE)?.length ?? 0);
}

/** Aligned columns under their titles, one line per row; the last column is not padded. */
export function table<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
  const cells = [
    columns.map(({ title }) => title),
    ...rows.map((row) => columns.map(({ text }) => escapeLine(text(row)))),
  ];
  const widths = columns.map((_, index) => Math.max(...cells.map((line) => displayWidth(line[index] ?? ''))));
  return cells
    .map((line) =>
      line
        .map((cell, index) => {
          const padding = ' '.repeat((widths[index] ?? 0) - displayWidth(cell));
          return columns[index]?.align === 'right' ? padding + cell : cell + padding;
        })
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Named fields, one on each line. Line breaks in them are escaped, and empty fields are left out. */
export function fieldLines(fields: readonly (readonly [string, string])[]): string[] {
  return fields
    .filter(([, text]) => text !== '')
    .map(([name, text]) => `${escapeLine(name).padEnd(14)} ${escapeLine(text)}`);
}

/** A text of several lines, prefixed so that none of them looks like a line of the command itself. */
export function block(text: string): string {
  return text.replace(/^/gm, '  | ');
}

/** A duration for people: `340 ms`, `2.4 s`, `5 min`, `3 h`, `2 d`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 48 * 3_600_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** A moment for people, in UTC. A damaged record must not keep a list from being printed. */
export function moment(atMs: number): string {
  const date = new Date(atMs);
  return Number.isNaN(date.getTime()) ? 'unknown' : date.toISOString();
}

export function prettyJson(value: unknown): string {
  return escapeJson(JSON.stringify(value, null, 2));
}

/** A value as one line of JSON. */
export function jsonLine(value: unknown): string {
  return escapeJson(JSON.stringify(value));
}

const MAX_OUTPUT_LINES = 40;

/** The fields of a call's output, for a terminal: one line each, or a block of lines. Empty ones are left out, and the end of a long output. */
export function outputLines(content: unknown): string[] {
  const fields = isObject(content) ? Object.entries(content) : [['output', content] as const];
  const lines = fields.flatMap(([name, value]) => {
    const text = textOf(value);
    if (['', '{}', 'null'].includes(text)) return [];
    return text.includes('\n') ? [escapeLine(name), ...block(text).split('\n')] : fieldLines([[name, text]]);
  });
  const rest = lines.length - MAX_OUTPUT_LINES;
  return rest <= 1
    ? lines
    : [...lines.slice(0, MAX_OUTPUT_LINES), `and ${plural(rest, 'line')} more: --json prints all`];
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return escapeInvisible(value.replaceAll('\r\n', '\n').trimEnd());
  return Array.isArray(value) ? value.map(jsonLine).join('\n') : prettyJson(value);
}
