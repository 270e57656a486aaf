/** @module-tag slow */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { connect } from '../../src/index.ts';
import type { SettingsInput } from '../../src/shared/config/config.ts';
import { resolveSettings } from '../../src/shared/config/resolve-settings.ts';
import { openPlace } from '../cli/pawl.ts';

interface Block {
  readonly language: string;
  readonly text: string;
}

/** The steps of a recipe on the page: its numbered headings, and the blocks below each. */
function stepsOf(recipe: string): readonly (readonly Block[])[] {
  const page = readFileSync(new URL('../../docs/runbook.md', import.meta.url), 'utf8');
  const section = page.split(/^## /m).find((part) => part.startsWith(recipe));
  if (section === undefined) throw new Error(`docs/runbook.md has no recipe ${JSON.stringify(recipe)}`);
  return section
    .split(/^### \d+\. /m)
    .slice(1)
    .map((step) =>
      [...step.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)].map(([, language = '', text = '']) => ({ language, text })),
    );
}

/** A command line as a shell would cut it; quotes are all that the page uses. */
const words = (line: string) =>
  [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '');

async function open(settings: Partial<SettingsInput>) {
  const pawl = await connect(settings);
  const session = (await pawl.sessions.list()).some(({ sessionKey }) => sessionKey === 'runbook')
    ? await pawl.session('runbook')
    : await pawl.openSession({ sessionKey: 'runbook' });
  return { session, [Symbol.asyncDispose]: () => pawl.close() };
}

test('the rollback recipe of docs/runbook.md works as it stands there, step by step (R34, TR-14)', async () => {
  const partition = await openPlace();
  onTestFinished(() => partition[Symbol.asyncDispose]());
  const steps = stepsOf('Calls are merged, refused or retried that should not be');
  expect(steps).toHaveLength(6);
  const exported: Record<string, string> = {};
  let worker = await partition.worker();
  const restart = async () => {
    worker.signal('SIGTERM');
    await worker.ended;
    worker = await partition.worker(exported);
  };
  /** Runs the commands of a step and returns what they printed. */
  const follow = async (number: number): Promise<string> => {
    let said = '';
    for (const { language, text } of steps[number - 1] ?? []) {
      if (language !== 'sh') continue;
      for (const line of text.trim().split('\n')) {
        const [command, ...args] = words(line);
        if (command === 'export') {
          const [name = '', value = ''] = (args[0] ?? '').split('=');
          exported[name] = value;
          continue;
        }
        expect(command).toBe('pawl');
        const { code, stdout, stderr } = await partition.run(args, { env: exported });
        expect({ line, code, stderr }).toMatchObject({ code: 0 });
        said += stdout + stderr;
      }
    }
    return said;
  };
  const { redisUrl, prefix } = partition.world;
  /** A call of a producer that was started with these settings. */
  const call = async (tool: string, params: object, reliability: SettingsInput['reliability']) => {
    await using pawl = await open({ redisUrl, prefix, logLevel: 'silent', reliability });
    return await pawl.session.call(tool, { ...params }, { idempotencyKey: 'again' });
  };
  const greet = (reliability: SettingsInput['reliability'] = {}) => call('greet', { name: 'Ada' }, reliability);
  const linger = (reliability: SettingsInput['reliability'] = {}) => call('linger', { ms: 1 }, reliability);

  // The trouble: an old result comes back.
  await greet();
  expect(await greet()).toMatchObject({ status: 'success', fromCache: true });
  expect(await follow(1)).toMatch(/tools\.greet +on +on +on +on/);

  expect(await follow(2)).toMatch(/tools\.greet +off[\s\S]*results are too old/);
  expect(await greet()).toMatchObject({ status: 'success', fromCache: false });

  expect(await follow(3)).toMatch(/forgot 2 calls/);

  await follow(4);
  const shadow = resolveSettings({ environment: exported }).reliability;
  expect(shadow).toMatchObject({ openMode: 'shadow', deriveKeys: 'off' });
  await restart();
  await greet(shadow);
  expect(await greet(shadow)).toMatchObject({ status: 'success', fromCache: false });
  const { stderr } = await partition.run(words(steps[3]?.[1]?.text ?? '').slice(1), { env: exported });
  expect(stderr).toContain('tools.greet would have been merged 1 time');

  for (const name of Object.keys(exported)) delete exported[name];
  const stage = steps[4]?.find(({ language }) => language === 'json')?.text ?? '';
  writeFileSync(join(partition.folder, 'pawl.config.json'), stage);
  const { reliability } = resolveSettings({ file: JSON.parse(stage) });
  await restart();
  await greet(reliability);
  expect((await greet(reliability)).fromCache, 'read-only tools merge').toBe(true);
  await linger(reliability);
  expect((await linger(reliability)).fromCache, 'others do not yet').toBe(false);
  rmSync(join(partition.folder, 'pawl.config.json'));
  await restart();
  await linger();
  expect((await linger()).fromCache).toBe(true);

  const state = JSON.parse(await follow(6)) as { enabled: boolean; tools: readonly object[] };
  expect(state.enabled).toBe(true);
  for (const tool of state.tools)
    expect(tool).toMatchObject({ enabled: true, dedupe: 'on', retry: 'on', circuits: 'on' });
});
