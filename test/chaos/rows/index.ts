/** All rows of the fault matrix, by number. */
import { keyRows } from './keys.ts';
import { loadRows } from './load.ts';
import { pointRows } from './points.ts';
import { redisRows } from './redis.ts';
import type { Row } from './row.ts';
import { tamperRows } from './tamper.ts';
import { wireRows } from './wires.ts';
import { workerRows } from './workers.ts';

export const ROWS: readonly Row[] = [
  ...workerRows,
  ...pointRows,
  ...wireRows,
  ...redisRows,
  ...keyRows,
  ...loadRows,
  ...tamperRows,
].sort((one, other) => one.number - other.number);
