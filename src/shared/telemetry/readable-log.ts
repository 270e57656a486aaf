/** Log lines for people at a terminal. Everywhere else they stay JSON. */
import { escapeJson, escapeLine } from '../util/text/visible-text.ts';

/** The names of pino's numeric levels. */
const LEVEL_NAMES: Record<number, string> = {
  10: 'trace',
  20: 'debug',
  30: 'info',
  40: 'warn',
  50: 'error',
  60: 'fatal',
};

/**
 * Formats a JSON line of pino as one line for a terminal: time of day (UTC), level, message, fields. Deceptive characters are escaped.
 *
 * @example
 * readableLogLine('{"level":40,"time":0,"pid":7,"tool":"pay","msg":"retried"}\n'); // '00:00:00.000 warn  retried  pid=7 tool=pay\n'
 */
export function readableLogLine(json: string): string {
  try {
    const { level, time, msg, ...fields } = JSON.parse(json) as { level: number; time: number; msg?: string };
    const start = `${new Date(time).toISOString().slice(11, 23)} ${(LEVEL_NAMES[level] ?? String(level)).padEnd(5)}`;
    return `${escapeLine([start, msg ?? '', '', ...Object.entries(fields).map(fieldText)].join(' ').trimEnd())}\n`;
  } catch {
    // A line that cannot be read is shown as it is: it may be the one that explains a failure.
    return escapeJson(json);
  }
}

function fieldText([name, value]: [string, unknown]): string {
  return `${name}=${typeof value === 'string' && !/[\s"=]/.test(value) ? value : JSON.stringify(value)}`;
}
