/** How figures are written. */
import type { Ratio } from './comparison.ts';
import type { CpuCost } from './fleet.ts';

export function times(ratio: number): string {
  return `${ratio.toFixed(2)}×`;
}

export function spread({ median, lowest, highest }: Ratio): string {
  return `${times(median)} (${lowest.toFixed(2)} to ${highest.toFixed(2)})`;
}

export function whole(value: number): string {
  return Math.round(value).toLocaleString('en');
}

export function milliseconds(value: number): string {
  return value < 0.1 ? value.toFixed(4) : value.toFixed(2);
}

export function mebibytes(bytes: number): string {
  return (bytes / 1_048_576).toFixed(1);
}

export function cpu({ worker, callers, store }: CpuCost): string {
  return [worker, callers, store].map(whole).join(' / ');
}

/** The days on which rows were measured: `2026-11-27, 2026-11-28`. */
export function days(dates: Readonly<Record<string, string>>): string {
  return [...new Set(Object.values(dates))].sort().join(', ');
}

export type Row = readonly string[];

/** Markdown, with columns aligned for a terminal. The first row is the head. */
export function table([head, ...body]: readonly Row[]): string {
  const rows = [head ?? [], ...body];
  const widths = (head ?? []).map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  const line = (row: Row) => `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`;
  return [line(head ?? []), `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...body.map(line)].join(
    '\n',
  );
}
