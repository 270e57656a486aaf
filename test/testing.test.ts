import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { defineTool } from 'pawl';
import {
  createLocalRunner,
  fakeClock,
  InMemoryDedupeStore,
  type LocalApprovalRequest,
  runTool,
  testContext,
} from 'pawl/testing';
import { describe, expect, expectTypeOf, inject, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { detectIsolation } from '../src/workers/context/processes.ts';
import { read as readTool } from '../src/workers/tools/read.ts';
import { shell } from '../src/workers/tools/shell.ts';
import { temporaryFolder } from './helpers/context.ts';

const note = defineTool({
  name: 'take_note',
  version: '1.0.0',
  description: 'Writes a note.',
  tier: 'workspace',
  effects: 'idempotent',
  needs: ['workspace:read', 'workspace:write'],
  input: z.object({ title: z.string(), lines: z.number().default(1) }),
  run: async ({ title, lines }, ctx) => {
    ctx.progress({ progress: lines });
    ctx.log.info('noting', { title });
    await ctx.workspace.write(`${title}.md`, 'line\n'.repeat(lines));
    return { output: { root: ctx.workspace.root, lines } };
  },
});

test('Pawl’s own data folder is hidden from tools here, as on a worker', async () => {
  const workspaceRoot = temporaryFolder();
  const dataDir = join(workspaceRoot, 'data');
  mkdirSync(dataDir);
  writeFileSync(join(dataDir, 'signing-key'), 'secret');
  const settings = { dataDir };
  const read = await runTool(readTool, { path: 'data/signing-key' }, { workspaceRoot, settings });
  expect(read.error?.code).toBe('PERMISSION_DENIED');
  const seen = await runTool(shell, { command: ['cat', 'data/signing-key'] }, { workspaceRoot, settings });
  if ((await detectIsolation()).includes('bubblewrap')) expect(JSON.stringify(seen)).not.toContain('secret');
});

describe('runTool', () => {
  test('gives the envelope that a caller would get, typed by the tool, and leaves no folder behind', async () => {
    const result = await runTool(note, { title: 'milk' });
    expect(result).toMatchObject({
      status: 'success',
      attempts: 1,
      fromCache: false,
      output: { content: { lines: 1 } },
    });
    if (result.status === 'success') {
      expectTypeOf(result.output.content).toEqualTypeOf<{ root: string; lines: number }>();
      expect(existsSync(result.output.content.root)).toBe(false);
    }
    // @ts-expect-error The parameters are the tool's.
    expect(await runTool(note, { titel: 'milk' })).toMatchObject({ error: { code: 'INVALID_PARAMS' } });
  });

  test('names the parameters that the tool’s own checks refuse, which no JSON Schema tells of', async () => {
    const between = defineTool({
      name: 'between',
      version: '1.0.0',
      description: 'Looks between two days.',
      tier: 'read-only',
      input: z
        .object({ from: z.number(), to: z.number() })
        .refine(({ from, to }) => from <= to, { error: 'must not be after to', path: ['from'] }),
      run: async () => ({ output: 'looked' }),
    });
    expect(await runTool(between, { from: 3, to: 1 })).toMatchObject({
      error: { code: 'INVALID_PARAMS', issues: [{ path: 'from', message: 'must not be after to' }] },
    });
    expect(await runTool(between, { from: 1, to: 3 })).toMatchObject({ status: 'success' });
  });

  test('says that the schema is at fault, not the parameters, where it refines asynchronously', async () => {
    const known = defineTool({
      name: 'known',
      version: '1.0.0',
      description: 'Takes what is known.',
      tier: 'read-only',
      input: z.object({ id: z.string().refine(async (id) => id === 'a') }),
      run: async () => ({ output: 'known' }),
    });
    expect(await runTool(known, { id: 'a' })).toMatchObject({
      error: { code: 'TOOL_FAILED', message: expect.stringContaining('`run` is the place for it') },
    });
  });

  test('works in a folder that it is given, and leaves that', async () => {
    const workspaceRoot = temporaryFolder();
    await runTool(note, { title: 'milk', lines: 2 }, { workspaceRoot });
    expect(readFileSync(join(workspaceRoot, 'milk.md'), 'utf8')).toBe('line\nline\n');
  });

  test('remembers in a store that it is given, and reads no settings but those', async () => {
    const options = { store: new InMemoryDedupeStore(), idempotencyKey: 'k', sessionKey: 's' };
    await runTool(note, { title: 'milk' }, options);
    expect(await runTool(note, { title: 'milk' }, options)).toMatchObject({ fromCache: true });
    expect(
      await runTool(note, { title: 'milk' }, { settings: { tools: { take_note: { enabled: false } } } }),
    ).toMatchObject({ error: { code: 'PERMISSION_DENIED' } });
  });
});

describe('testContext', () => {
  test('records what the tool says, and removes its folder', async () => {
    const ctx = testContext({ idempotencyKey: 'k', attempt: 2, fence: 7 });
    await note.run({ title: 'tea', lines: 3 }, ctx);
    expect(readFileSync(join(ctx.workspaceRoot, 'tea.md'), 'utf8')).toBe('line\n'.repeat(3));
    expect(ctx.progressed).toEqual([{ progress: 3 }]);
    expect(ctx.logged).toEqual([{ level: 'info', message: 'noting', fields: { title: 'tea' } }]);
    expect([ctx.idempotencyKey, ctx.attempt, ctx.fence]).toEqual(['k', 2, 7]);
    ctx.dispose();
    expect(existsSync(ctx.workspaceRoot)).toBe(false);
  });

  test('leaves a folder that it was given', () => {
    const workspaceRoot = temporaryFolder();
    writeFileSync(join(workspaceRoot, 'mine'), '');
    {
      using ctx = testContext({ workspaceRoot });
      expect(ctx.workspaceRoot).toBe(workspaceRoot);
    }
    expect(existsSync(join(workspaceRoot, 'mine'))).toBe(true);
  });

  test('refuses what the session’s kind, the tool’s tier or its needs do not allow (A10)', async () => {
    const denied = { code: 'PERMISSION_DENIED' };
    for (const options of [{ kind: 'worker' }, { tier: 'read-only' }, { needs: ['workspace:read'] }] as const) {
      using ctx = testContext(options);
      await expect(ctx.workspace.write('a', 'b')).rejects.toMatchObject(denied);
      await expect(ctx.processes.run({ argv: ['true'] })).rejects.toMatchObject(denied);
    }
    using ctx = testContext();
    await expect(ctx.memory.search('anything')).rejects.toMatchObject(denied);
    await expect(ctx.channel.send('anything')).rejects.toMatchObject(denied);
  });
});

describe('fakeClock', () => {
  test('runs what is due in its order, each at its own moment, and nothing that was taken back', async () => {
    const clock = fakeClock(1_000);
    const ran: string[] = [];
    const at = (name: string) => () => void ran.push(`${name} at ${clock.now()}`);
    clock.schedule(at('second'), 20);
    clock.schedule(() => {
      at('first')();
      clock.schedule(at('inner'), 5);
    }, 10);
    clock.schedule(at('never'), 12)();
    clock.schedule(at('later'), 31);
    await clock.advance(30);
    expect(ran).toEqual(['first at 1010', 'inner at 1015', 'second at 1020']);
    expect([clock.now(), clock.monotonic()]).toEqual([1_030, 30]);
    await clock.advance(1);
    expect(ran.at(-1)).toBe('later at 1031');
  });

  test('goes on until a promise settles, also when that rejects', async () => {
    const clock = fakeClock(0);
    const wait = (ms: number) => new Promise<number>((resolve) => clock.schedule(() => resolve(clock.now()), ms));
    expect(await clock.until(wait(3_600_000).then(() => wait(60_000)))).toBe(3_660_000);
    await expect(
      clock.until(
        wait(10).then(() => {
          throw new Error('no');
        }),
      ),
    ).rejects.toThrow('no');
  });

  test('waits for files and programs in real time, so that a time limit does not overtake them', async () => {
    const clock = fakeClock();
    const slow = defineTool({
      name: 'slow',
      version: '1.0.0',
      description: 'Takes a moment of real time.',
      tier: 'system',
      input: z.object({}),
      run: async (_params, ctx) => {
        await ctx.workspace.write('a', 'x'.repeat(1_000_000));
        const { exitCode } = await ctx.processes.run({ argv: ['sleep', '0.2'] });
        return { output: { exitCode } };
      },
    });
    const workspaceRoot = temporaryFolder();
    const settings = { sandbox: inject('sandbox') };
    const runner = createLocalRunner({ tools: [slow], clock, workspaceRoot, settings });
    onTestFinished(() => runner.close(0));
    expect(await clock.until(runner.run(slow, {}))).toMatchObject({
      status: 'success',
      output: { content: { exitCode: 0 } },
    });
  });
});

test('a tool reaches a test’s own server when the runner’s settings allow it', async () => {
  const server = createServer((_request, response) => response.end('hello'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const read = defineTool({
    name: 'read_page',
    version: '1.0.0',
    description: 'Reads a page.',
    tier: 'read-only',
    needs: ['network'],
    input: z.object({}),
    run: async (_params, ctx) => ({ output: await (await ctx.fetch(`http://${host}/`)).text() }),
  });
  expect(await runTool(read, {}, { settings: { allowedHosts: [host] } })).toMatchObject({
    output: { content: 'hello' },
  });
  expect(await runTool(read, {})).toMatchObject({ status: 'error', error: { code: 'PERMISSION_DENIED' } });
});

describe('calls that a person must approve (A4)', () => {
  const transfer = () => {
    const ran: number[] = [];
    const tool = defineTool({
      name: 'transfer',
      version: '1.0.0',
      description: 'Sends money.',
      tier: 'elevated',
      effects: 'keyed',
      input: z.object({ to: z.string(), amount: z.number() }),
      preview: ({ to, amount }) => ({ summary: `Send ${amount} to ${to}` }),
      run: ({ amount }, { attempt }) => {
        ran.push(amount);
        if (attempt === 1) throw Object.assign(new Error('try again'), { status: 503 });
        return { output: { sent: amount } };
      },
    });
    return { tool, ran };
  };

  test('run when `approve` decides so, which is asked once for all attempts and sees what a person would', async () => {
    const { tool, ran } = transfer();
    const asked: LocalApprovalRequest[] = [];
    const approve = (request: LocalApprovalRequest) => {
      asked.push(request);
      return { decision: 'approve' } as const;
    };
    const result = await runTool(tool, { to: 'bob', amount: 5 }, { approve, actorId: 'ada' });
    expect(result).toMatchObject({ status: 'success', attempts: 2, output: { content: { sent: 5 } } });
    expect(ran).toEqual([5, 5]);
    expect(asked).toMatchObject([
      {
        tool: { namespace: 'tools', name: 'transfer', version: '1.0.0', tier: 'elevated' },
        params: { to: 'bob', amount: 5 },
        preview: { summary: 'Send 5 to bob' },
        actorId: 'ada',
        rule: 'built-in.tiers.elevated',
      },
    ]);
  });

  test('are denied when it denies, with its reason, and where no function decides', async () => {
    const { tool, ran } = transfer();
    const approve = async () => ({ decision: 'deny', reason: 'more than 100' }) as const;
    const denied = await runTool(tool, { to: 'bob', amount: 500 }, { approve });
    expect(denied.error).toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining('more than 100'),
    });
    expect((await runTool(tool, { to: 'bob', amount: 5 })).error?.code).toBe('PERMISSION_DENIED');
    expect(ran).toEqual([]);
  });

  test('are denied where `approve` fails or answers something else, and the call says so', async () => {
    const { tool, ran } = transfer();
    const answers = [undefined, true, { decision: 'yes' }].map((answer) => () => answer as never);
    const failing = () => {
      throw new Error('expected 5 to be 6');
    };
    const messages: unknown[] = [];
    for (const approve of [failing, ...answers]) {
      const { error } = await runTool(tool, { to: 'bob', amount: 5 }, { approve });
      expect(error?.code).toBe('PERMISSION_DENIED');
      messages.push(error?.message);
    }
    expect(messages).toEqual([
      expect.stringContaining('`approve` failed: expected 5 to be 6'),
      expect.stringContaining("must answer { decision: 'approve' } or { decision: 'deny', reason? }; got undefined"),
      expect.stringContaining('got true'),
      expect.stringContaining('got {"decision":"yes"}'),
    ]);
    expect(ran).toEqual([]);
  });

  test('are those, too, about which policy asks', async () => {
    const settings = { policy: { global: { tools: { take_note: 'ask' } } } } as const;
    const approve = () => ({ decision: 'approve' }) as const;
    expect((await runTool(note, { title: 'milk' }, { settings, approve })).status).toBe('success');
    expect((await runTool(note, { title: 'milk' }, { settings })).error?.code).toBe('PERMISSION_DENIED');
  });
});

test.each([
  [undefined, 'undefined'],
  [null, 'null'],
  [{ name: 'note' }, 'another object'],
])('what is no tool, such as a missing export, is named, and leaves no folder: %s', async (stranger, shown) => {
  const folder = temporaryFolder();
  vi.stubEnv('TMPDIR', folder);
  onTestFinished(() => void vi.unstubAllEnvs());
  await expect(runTool(stranger as unknown as typeof note, { title: '' })).rejects.toThrow(
    `tools[0] must be a tool, as defineTool({ … }) returns it; got ${shown}.`,
  );
  expect(readdirSync(folder)).toEqual([]);
});
