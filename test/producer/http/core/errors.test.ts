import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { REQUEST_ERROR_CODES, STATUSES, toHttpRefusal } from '../../../../src/producer/http/core/errors.ts';
import { PawlError } from '../../../../src/shared/errors/failure.ts';
import { FAILURES } from '../../../../src/shared/errors/failure-codes.ts';

test('docs/http.md names every code that can end a request beside its status', () => {
  const page = readFileSync(new URL('../../../../docs/http.md', import.meta.url), 'utf8');
  const rows = [...page.matchAll(/^\| (\d{3}[^|]*) \| (.*) \|$/gm)].map(([, statuses = '', codes = '']) => ({
    statuses,
    codes,
  }));
  const missing = Object.entries(STATUSES).filter(
    ([code, status]) =>
      REQUEST_ERROR_CODES.includes(code) &&
      !rows.some((row) => row.statuses.includes(String(status)) && row.codes.includes(`\`${code}\``)),
  );
  expect(missing).toEqual([]);
});

test('every error code is of the catalogue or of HTTP', () => {
  const ofHttp = [
    'UNAUTHENTICATED',
    'METHOD_NOT_ALLOWED',
    'PAYLOAD_TOO_LARGE',
    'UNSUPPORTED_MEDIA_TYPE',
    'RATE_LIMITED',
    'INTERNAL',
  ];
  for (const code of REQUEST_ERROR_CODES)
    expect(Object.hasOwn(FAILURES, code) || ofHttp.includes(code), code).toBe(true);
});

test('a defect is 500 without any details', () => {
  for (const thrown of [new Error('/etc/secret'), 'text', undefined, new PawlError('TIMEOUT', 'no code of this door')])
    expect(toHttpRefusal(thrown)).toEqual({
      status: 500,
      headers: {},
      body: { error: { code: 'INTERNAL', message: 'Internal error: see the log of this server.' } },
      defect: true,
    });
});
