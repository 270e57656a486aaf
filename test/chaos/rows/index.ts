/** All rows of the fault matrix, by number. */
import { approvalRows } from './approvals.ts';
import { callbackRows } from './callbacks.ts';
import { checkpointRows } from './checkpoints.ts';
import { deadLetterRows } from './dead-letters.ts';
import { delayedRows } from './delayed-calls.ts';
import { keyRows } from './keys.ts';
import { killRows } from './kills.ts';
import { loadRows } from './load.ts';
import { pendingRows } from './pending-calls.ts';
import { planRows } from './plans.ts';
import { pointRows } from './points.ts';
import { redisRows } from './redis.ts';
import type { Row } from './row.ts';
import { scheduleRows } from './schedules.ts';
import { serverRows } from './servers.ts';
import { tamperRows } from './tamper.ts';
import { versionRows } from './versions.ts';
import { wireRows } from './wires.ts';
import { workerRows } from './workers.ts';

export const ROWS: readonly Row[] = [
  ...workerRows,
  ...killRows,
  ...pointRows,
  ...wireRows,
  ...redisRows,
  ...serverRows,
  ...keyRows,
  ...loadRows,
  ...approvalRows,
  ...tamperRows,
  ...versionRows,
  ...deadLetterRows,
  ...scheduleRows,
  ...delayedRows,
  ...planRows,
  ...pendingRows,
  ...callbackRows,
  ...checkpointRows,
].sort((one, other) => one.number - other.number);
