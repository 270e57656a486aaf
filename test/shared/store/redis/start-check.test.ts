import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { connect, startWorker } from '../../../../src/index.ts';
import { ClockFollower } from '../../../../src/shared/store/clock-follower.ts';
import { type Redis, serverTimeMs } from '../../../../src/shared/store/redis/connection.ts';
import { checkRights } from '../../../../src/shared/store/redis/start-check.ts';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { startWire } from '../../../helpers/proxy.ts';
import { createUser } from '../../../helpers/redis-user.ts';
import { echo } from '../../../helpers/tools.ts';
import { createWorld } from '../../../helpers/world.ts';
import { answering, expectSentence, hurryStart, serverWith, startOn } from './start-rig.ts';

const BULLMQ_SCRIPTS = fileURLToPath(new URL('../../../../node_modules/bullmq/dist/esm/scripts/', import.meta.url));
const OTHERWISE = new Set(
  'PUBLISH SUBSCRIBE UNSUBSCRIBE EVAL EVALSHA MULTI BLPOP BZPOPMIN INFO CONFIG PING SELECT CALL DISCONNECT'.split(' '),
);
const STORE = fileURLToPath(new URL('../../../../src/shared/store/', import.meta.url));

describe('a Redis user', () => {
  test.each(['subscribe', 'publish', 'eval', 'evalsha', 'hset', 'zadd', 'xadd', 'blpop', 'bzpopmin', 'time', 'info'])(
    'without %s is refused at the start, with the rule that it lacks',
    async (command) => {
      const { redisUrl, prefix } = await createWorld();
      const { url, give } = await createUser(redisUrl, prefix, ['~*', '&*', '+@all', `-${command}`]);
      await expect(startOn(url, prefix)).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringMatching(new RegExp(`ACL SETUSER \\S+ .*\\+${command}\\b`)),
      });
      await give(`+${command}`);
      await startOn(url, prefix);
    },
  );

  test.each(['multi', 'exec', 'xrevrange', 'ping'])(
    'of a producer without %s is refused at the start, too',
    async (command) => {
      const { redisUrl, prefix } = await createWorld();
      const { url } = await createUser(redisUrl, prefix, ['~*', '&*', '+@all', `-${command}`]);
      await expect(startOn(url, prefix, 'fail-fast')).rejects.toMatchObject({
        message: expect.stringContaining(`+${command}`),
      });
    },
  );

  test('without waitaof is refused where a tool’s calls wait for the disk', async ({ skip }) => {
    const { redisUrl, prefix } = await createWorld();
    const rules = ['~*', '&*', '+@all', '-waitaof'];
    const user = await createUser(redisUrl, prefix, rules).catch(() => skip('this Redis has no WAITAOF'));
    await startOn(user.url, prefix);
    for (const options of [{ durability: 'waitaof' }, { tools: { pay: { durability: 'waitaof' } } }] as const)
      await expect(startOn(user.url, prefix, 'patient', options)).rejects.toMatchObject({
        message: expect.stringMatching(/ACL SETUSER \S+ \+waitaof$/),
      });
  });

  test('without the channels or the keys is refused with their patterns', async () => {
    const { redisUrl, prefix } = await createWorld();
    const { url, give } = await createUser(redisUrl, prefix, ['~*', 'resetchannels', '+@all']);
    await expect(startOn(url, prefix)).rejects.toMatchObject({ message: expect.stringContaining(`&${prefix}:*`) });
    await give(`&${prefix}:*`, 'resetkeys', '~other:*');
    await expect(startOn(url, prefix)).rejects.toMatchObject({ message: expect.stringContaining(`~${prefix}:*`) });
  });

  test.each([
    ['reads alone', ['-@all', '+@read', '+@connection']],
    ['what is fast', ['+@all', '-@slow']],
    ['what is slow', ['+@all', '-@fast']],
  ])('of %s can do all that a call needs once it has the rules that the start names', async (_kind, rules) => {
    const { redisUrl, prefix } = await createWorld();
    const { url, give } = await createUser(redisUrl, prefix, ['~*', '&*', ...rules]);
    for (let refused = true; refused; ) {
      refused = false;
      await startOn(url, prefix).catch(async (error: Error) => {
        refused = true;
        const rule = /ACL SETUSER \S+ (.+)$/.exec(error.message)?.[1];
        if (rule === undefined) throw error;
        await give(...rule.split(' '));
      });
    }
    const worker = await startWorker({ tools: [echo], redisUrl: url, prefix, log: silentLogger });
    const pawl = await connect({ redisUrl: url, prefix, log: silentLogger });
    onTestFinished(async () => {
      await pawl.close();
      await worker.close();
    });
    const session = await pawl.openSession({ actorId: 'ada' });
    expect(await session.call(echo, { text: 'said' }, { timeoutMs: 20_000 })).toMatchObject({ status: 'success' });
  });

  test('is tried with every command that a script, BullMQ or the code uses', () => {
    const used = new Set<string>();
    const find = (folder: string, file: RegExp, command: RegExp): void => {
      const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => file.test(name));
      expect(files.length).toBeGreaterThan(8);
      for (const name of files)
        for (const [, first = ''] of readFileSync(join(folder, name), 'utf8').matchAll(command))
          for (const [word] of first.matchAll(/[A-Za-z]{3,}/g)) used.add(word.toUpperCase());
    };
    find(STORE, /(?<!try-commands)\.lua$/, /redis\.p?call\((?:\w+ and )?('\w+'(?: or '\w+')?)/g);
    find(
      BULLMQ_SCRIPTS,
      /^(?:add(?:Standard|Delayed|Prioritized)Job|moveTo(?:Active|Delayed|Finished)|moveStalledJobsToWait|extendLocks?|retryJob|promote|changeDelay|removeJob|getCounts|getRanges|getStateV2)-\d+\.js$/,
      /call\(["'](\w+)["']/g,
    );
    find(STORE, /\.ts$/, /\bredis\.([a-z]+)(?:Buffer)?\(/g);
    const tried = readFileSync(join(STORE, 'redis/try-commands.lua'), 'utf8');
    // They are tried on their own, are methods of the client, or may be missing.
    for (const name of OTHERWISE) used.delete(name);
    expect([...used].filter((name) => !tried.includes(`{'${name}'`))).toEqual([]);
  });
});

describe('an answer that Pawl does not know', () => {
  test.each(['PUBLISH', 'SUBSCRIBE', 'EVALSHA', 'TIME', 'HGETALL', 'BLPOP'])(
    'of a server without %s ends the start in one sentence that names it',
    async (command) => {
      const { url } = await serverWith('--rename-command', command, '');
      await expect(startOn(url)).rejects.toMatchObject({
        name: 'PawlError',
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringMatching(new RegExp(command, 'i')),
      });
      if (command === 'SUBSCRIBE') await expectSentence(url, 7, new RegExp(command, 'i'));
    },
  );

  test('of something else ends it in one sentence with the reason', async () => {
    const startWith = async (answer: string, reason: RegExp) => {
      const url = await answering(() => answer);
      await expect(startOn(url, 'pawl', 'fail-fast'), answer).rejects.toMatchObject({
        name: 'PawlError',
        code: expect.stringMatching(/BACKEND_UNAVAILABLE|CONFIGURATION/),
        message: expect.stringMatching(reason),
      });
      if (answer.startsWith('-')) await expectSentence(url, 7, reason);
    };
    // Each waits as long as a start does for an answer that it knows.
    await Promise.all([
      startWith(
        '-ERR max daily request limit exceeded. Limit: 10000, Usage: 10001.\r\n',
        /max daily request limit exceeded/,
      ),
      startWith('-DENIED this proxy takes no such thing\r\n', /DENIED this proxy takes no such thing/),
      startWith('HTTP/1.1 400 Bad Request\r\n\r\n', /does not speak the protocol of Redis/),
      startWith('+surprise\r\n', /Redis cannot be used/),
    ]);
  });

  test.each(['publish', 'time', 'eval', 'hgetall'])(
    'is that of a proxy that goes silent at %s: a worker does not wait for it without end',
    async (command) => {
      const { redisUrl } = await createWorld();
      const wire = await startWire(redisUrl);
      wire.deafenWhenSaid(`\n${command}\r`);
      hurryStart();
      await expect(startOn(wire.url)).rejects.toMatchObject({
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringContaining('no answer within'),
      });
    },
  );

  test.each([[null], ['OK'], [[]], [[null, null]], [[{}, 1]], [['x', '1']]])(
    'of a proxy that answers TIME with %j ends it in one sentence',
    async (answer) => {
      const proxy = { time: async () => answer, on: () => {} } as unknown as Redis;
      const refusal = {
        code: 'BACKEND_UNAVAILABLE',
        message: expect.stringContaining(`it answered TIME with ${JSON.stringify(answer)}`),
      };
      await expect(serverTimeMs(proxy)).rejects.toMatchObject(refusal);
      const follower = new ClockFollower(proxy);
      onTestFinished(() => follower.close());
      await expect(follower.read()).rejects.toMatchObject(refusal);
    },
  );

  test.each(['OK', null, 1])('of a proxy that answers a script with %j ends it in one sentence', async (answer) => {
    const proxy = { on: () => {}, options: {}, eval: async () => answer } as unknown as Redis;
    await expect(checkRights(proxy, 'pawl', { blocks: false, waits: false })).rejects.toMatchObject({
      code: 'BACKEND_UNAVAILABLE',
      message: expect.stringContaining(`it answered EVAL with ${JSON.stringify(answer)}`),
    });
  });
});
