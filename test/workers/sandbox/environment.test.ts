import { expect, test } from 'vitest';
import { allowedEnvironment, programEnvironment } from '../../../src/workers/sandbox/environment.ts';

test('only names of the allow-list pass, and PATH and TERM are always there', () => {
  const source = {
    HOME: '/h',
    LC_ALL: 'C',
    LC_x: '1',
    REDIS_URL: 'r',
    GITHUB_TOKEN: 't',
    TZ: undefined,
    TERM: 'xterm',
  };
  expect(allowedEnvironment(source)).toEqual({
    PATH: '/usr/local/bin:/usr/bin:/bin',
    HOME: '/h',
    LC_ALL: 'C',
    TERM: 'dumb',
  });
});

test('a request may add to it, but not what acts on the sandbox’s own programs', () => {
  expect(programEnvironment({}, { PATH: '/own', A: '1' })).toEqual({ PATH: '/own', TERM: 'dumb', A: '1' });
  for (const name of [
    'LD_PRELOAD',
    'LD_LIBRARY_PATH',
    'DYLD_INSERT_LIBRARIES',
    'PAWL_CALL_ID',
    'GCONV_PATH',
    'GLIBC_TUNABLES',
    'BASH_ENV',
    'SHELLOPTS',
    'PS4',
    '',
    '1A',
    'A-B',
    'A=B',
  ]) {
    expect(() => programEnvironment({}, { [name]: 'x' })).toThrow(expect.objectContaining({ code: 'INVALID_PARAMS' }));
  }
});
