import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { resolveSettings } from '../../../../src/shared/config/resolve-settings.ts';
import { PawlError } from '../../../../src/shared/errors/failure.ts';
import { addressOf, clusterAddressOf } from '../../../../src/shared/store/redis/address.ts';
import { connectVerified } from '../../../../src/shared/store/redis/connection.ts';
import { redisOptions } from '../../../../src/shared/store/redis/connection-options.ts';
import { createUser } from '../../../helpers/redis-user.ts';
import { createWorld } from '../../../helpers/world.ts';

const some = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
const anyText = fc.string({ minLength: 1, maxLength: 12, unit: 'grapheme' }).filter((text) => text.isWellFormed());
const where = fc.constantFrom('address', 'query');

/** A part of an address and where it stands: in its own place, or behind the ?. */
const parts = fc.record({
  host: some(fc.constantFrom('host', '10.0.0.1', '[::1]', '[2001:db8::7]', '[fe80::1%25eth0]')),
  port: some(fc.integer({ min: 1, max: 65_535 })),
  username: some(anyText),
  password: some(anyText),
  db: some(fc.integer({ min: 0, max: 99 })),
  tls: some(fc.boolean()),
  path: anyText.map((text) => `/run/${text}`),
  at: fc.record({ username: where, password: where, db: where, tls: where }),
});

function write(given: typeof parts extends fc.Arbitrary<infer T> ? T : never): string {
  const { host, port, username, password, db, tls, path, at } = given;
  const query = (Object.entries({ username, password, db, tls }) as [keyof typeof at, unknown][])
    .filter(([name, value]) => value !== undefined && (at[name] === 'query' || (host === undefined && name === 'db')))
    .map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
  const inPlace = (name: 'username' | 'password', value = '') =>
    at[name] === 'address' ? encodeURIComponent(value) : '';
  const [user, secret] = [inPlace('username', username), inPlace('password', password)];
  const userInfo = user === '' && secret === '' ? '' : `${user}${secret === '' ? '' : `:${secret}`}@`;
  const ending = query.length === 0 ? '' : `?${query.join('&')}`;
  if (host === undefined) return `unix://${userInfo}${encodeURI(path).replace(/[?#]/g, encodeURIComponent)}${ending}`;
  const scheme = tls === true && at.tls === 'address' ? 'rediss' : 'redis';
  const database = db !== undefined && at.db === 'address' ? `/${db}` : '';
  return `${scheme}://${userInfo}${host}${port === undefined ? '' : `:${port}`}${database}${ending}`;
}

test('each part of an address is used, wherever it stands', () => {
  fc.assert(
    fc.property(parts, (given) => {
      const isSocket = given.host === undefined;
      if (isSocket && given.tls !== undefined) Object.assign(given, { tls: undefined });
      const { host, port, username, password, db, tls, path } = given;
      const url = write(given);
      const expected = {
        ...(host === undefined
          ? { path }
          : { host: host.replace(/[[\]]/g, '').replace('%25', '%'), port: port ?? 6379 }),
        ...(username === undefined ? {} : { username }),
        ...(password === undefined ? {} : { password }),
        ...(db === undefined ? {} : { db }),
        ...(tls === true ? { tls: {} } : {}),
      };
      expect(addressOf(url), url).toEqual(expected);
      expect(redisOptions({ url, name: 'n', mode: 'patient' }), url).toMatchObject(expected);
    }),
  );
});

test('a part that means nothing is refused by its name, and a possible password is never shown', () => {
  const schemes = [
    'redis://host:6379',
    'rediss://host/1',
    'unix:///run/redis.sock',
    'redis://one,two',
    'redis+cluster://one',
    'redis+sentinel://one/main',
  ];
  const name = fc.stringMatching(/^[a-z_A-Z]{1,12}$/);
  const known = 'db username password tls ca cert key family sentinelUsername sentinelPassword'.split(' ');
  fc.assert(
    fc.property(
      fc.constantFrom(...schemes),
      name.filter((each) => !known.includes(each)),
      (url, part) => {
        const refusal = expect.objectContaining({
          code: 'CONFIGURATION',
          message: expect.stringContaining(JSON.stringify(part)),
        });
        for (const query of [part, `${part}=hunter2`, `tls=no&${part}=hunter2`]) {
          if (url.startsWith('unix:') || !url.startsWith('rediss:') || !query.startsWith('tls'))
            expect(() => redisOptions({ url: `${url}?${query}`, name: 'n', mode: 'patient' }), query).toThrow(refusal);
          expect(() => redisOptions({ url: `${url}?${query}`, name: 'n', mode: 'patient' })).not.toThrow('hunter2');
        }
      },
    ),
  );
});

test.each([
  ['redis://h?db=x', 'database'],
  ['redis://h/1?db=2', 'db twice'],
  ['redis://h?db=1&db=1', 'db twice'],
  ['redis://u@h?username=v', 'username twice'],
  ['redis://:hunter2@h?password=hunter2', 'password twice'],
  ['redis://h?tls=hunter2', '"tls"'],
  ['redis://h?family=5', '"family"'],
  ['rediss://h?tls=false', 'tls'],
  ['unix:///run/s?tls=true', 'tls'],
  ['unix:///run/s?family=4', 'family'],
  ['unix://run/s', 'three slashes'],
  ['redis://h#hunter2', '#'],
  ['unix:///run/s#hunter2', '#'],
  ['redis://u?hunter2@h', '%3F'],
  ['redis://u:hunter2/w=@h:6379', '%2F'],
  ['redis://:hunter2#w@h:6379', '%2F'],
  ['redis+sentinel://u:hunter2/w=@h/main', '%2F'],
  ['redis+sentinel://u:1/hunter2@h', '%2F'],
  ['redis://:6379', 'no host'],
  ['redis://:hunter2@:6379', 'no host'],
  ['redis://h:$PORT', 'a host or a port'],
  ['redis:h', 'redis://'],
  ['"redis://u:hunter2@h:6379"', 'quotation mark'],
  ["'rediss://u:hunter2@h/1", 'quotation mark'],
  ['"redis://one,redis://two"', 'quotation mark'],
  ['"/run/s"', 'quotation mark'],
  [' redis://u:hunter2@h', 'white space'],
  ['\tunix:///run/s', 'white space'],
  [' redis://one,two', 'white space'],
  ['redis://::1', 'brackets'],
  ['redis://u:hunter2@fe80::1%eth0:6379/2', 'brackets'],
  ['redis://[::1]:65536', 'port'],
  ['redis://one,two/3', 'one database'],
  ['redis+cluster://one/3', 'one database'],
  ['redis://u:hunter2@one,redis://u:hunter3@two', 'password'],
  ['redis://one,rediss://two', 'alike'],
  ['redis+sentinel://one:26379', 'name last'],
  ['redis://u:hunter2@one,v:hunter3@two', '%40'],
  ['redis+cluster://u:hunter2@one,v:hunter3@two', '%40'],
  ['redis+sentinel://u:hunter2@one,v:hunter3@two/main', '%40'],
  ['redis://u:hunter2@one;u:hunter2@two', '%40'],
  ['redis://one;two', 'no name of a host'],
  ['redis://one%2Ctwo', 'no name of a host'],
  ['redis://one%2Fhunter2', 'no name of a host'],
  ['redis://,one', 'comma'],
  ['redis://one\ntwo', 'line break'],
])('%s is refused: %s', (url, word) => {
  const refuse = () => redisOptions({ url, name: 'n', mode: 'patient' });
  expect(refuse).toThrow(PawlError);
  expect(refuse).toThrow(expect.objectContaining({ code: 'CONFIGURATION', message: expect.stringContaining(word) }));
  expect(refuse).not.toThrow(/hunter/);
});

test('what is said of one node of a cluster holds for all', () => {
  const { nodes, common } = clusterAddressOf('redis://u:p@one:7000,[::1]:7001,two?tls=true&family=6');
  expect(nodes).toEqual([
    { host: 'one', port: 7_000 },
    { host: '::1', port: 7_001 },
    { host: 'two', port: 6_379 },
  ]);
  expect(common).toMatchObject({ username: 'u', password: 'p', family: 6, tls: {} });
});

test.each([
  ['', {}],
  ['u@', { username: 'u' }],
  [':p@', { password: 'p' }],
  ['u:p@', { username: 'u', password: 'p' }],
  [':p:@', { password: 'p:' }],
  [':a,b@', { password: 'a,b' }],
  [':%2F%3F%23%40@', { password: '/?#@' }],
])('the user %j in front of several nodes holds for all', (user, expected) => {
  const nodes = [
    { host: 'one', port: 7_000 },
    { host: 'two', port: 7_001 },
  ];
  for (const scheme of ['redis', 'redis+cluster'])
    expect(clusterAddressOf(`${scheme}://${user}one:7000,two:7001`)).toEqual({ nodes, common: expected });
  expect(addressOf(`redis+sentinel://${user}one:7000,two:7001/main`)).toEqual({
    ...{ sentinels: nodes, name: 'main' },
    ...expected,
  });
  const isUnreadable = expect.objectContaining({
    message: expect.stringContaining('a host or a port that cannot be read'),
  });
  expect(() => addressOf(`redis://${user}one:port`)).toThrow(isUnreadable);
});

test('the files that are named behind several nodes are those of all', () => {
  const file = fileURLToPath(import.meta.url);
  const tls = { ca: readFileSync(file, 'utf8') };
  for (const query of [`one,two?ca=${file}`, `one?ca=${file},rediss://two`, `one?ca=${file},rediss://two?ca=${file}`]) {
    expect(clusterAddressOf(`rediss://${query}`).common, query).toMatchObject({ tls });
    expect(clusterAddressOf(`rediss://${query}`).nodes, query).toHaveLength(2);
  }
  expect(addressOf(`rediss+sentinel://one,two/main?ca=${file}`)).toMatchObject({ tls, sentinelTLS: tls });
  const others = `one?ca=${file},rediss://two?ca=/dev/null`;
  expect(() => clusterAddressOf(`rediss://${others}`)).toThrow('differ in their ca');
});

test('Sentinels are asked for the server by its name', () => {
  expect(addressOf('rediss+sentinel://u:p@one:1,[::1]/main/2?sentinelPassword=q')).toEqual({
    sentinels: [
      { host: 'one', port: 1 },
      { host: '::1', port: 26_379 },
    ],
    name: 'main',
    username: 'u',
    password: 'p',
    db: 2,
    sentinelPassword: 'q',
    tls: { checkServerIdentity: expect.any(Function) },
    sentinelTLS: { checkServerIdentity: expect.any(Function) },
    enableTLSForSentinelMode: true,
  });
});

test('a user, a password and a database reach the server through a Unix socket', async ({ skip }) => {
  const { redisUrl, prefix } = await createWorld();
  skip(!redisUrl.startsWith('unix:'), 'needs a Unix socket');
  await createUser(redisUrl, prefix, ['~*', '&*', '+@all']);
  const url = `${redisUrl.replace('unix://', `unix://${prefix}:password@`)}?db=3`;
  const { redis } = await connectVerified({ url, name: prefix, mode: 'fail-fast' }, 10_000);
  expect(await redis.client('INFO')).toMatch(new RegExp(` db=3 .*user=${prefix} `));
  redis.disconnect();
});

test('a host to listen on may be an IPv6 address in brackets', () => {
  const environment = { PAWL_HTTP_HOST: '[::1]', PAWL_METRICS_HOST: '[::]' };
  expect(resolveSettings({ environment })).toMatchObject({ httpHost: '::1', metricsHost: '::' });
  for (const httpHost of ['fe80::1%eth0', '::ffff:127.0.0.1', 'my_host', '127.1'])
    expect(resolveSettings({ options: { httpHost } })).toMatchObject({ httpHost });
});
