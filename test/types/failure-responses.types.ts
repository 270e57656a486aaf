/**
 * A failure code that a front door has no answer for must not compile. Nothing here runs.
 */

import { STATUSES } from '../../src/producer/http/core/errors.ts';
import type { FailureCode } from '../../src/shared/errors/failure-codes.ts';
import { FAILURE_RESPONSES, type FailureResponse } from '../../src/shared/errors/failure-responses.ts';

const { TIMEOUT: _timeout, ...withoutTimeout } = FAILURE_RESPONSES;

// @ts-expect-error: the answers to `TIMEOUT` are missing.
export const oneCodeMissing: typeof FAILURE_RESPONSES = withoutTimeout;

// @ts-expect-error: a code of the catalogue that is in no row.
export const newCode: Readonly<Record<FailureCode | 'NEW_CODE', FailureResponse>> = FAILURE_RESPONSES;

// @ts-expect-error: every row answers each front door, MCP too.
export const oneDoorMissing: FailureResponse = { http: 400, exit: 'usage' };

// @ts-expect-error: the CLI has no exit code of this name.
export const unknownExit: FailureResponse = { http: 400, exit: 'broken', mcp: 'toolResult' };

/** Each code has a status, so none falls back to 500 by accident. */
export const status: number = STATUSES.TIMEOUT;
