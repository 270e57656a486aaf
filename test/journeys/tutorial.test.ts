/** @module-tag slow */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openPlace } from '../cli/pawl.ts';

const PAGE = readFileSync(new URL('../../docs/tutorial.md', import.meta.url), 'utf8');

const blocks = (language: string) =>
  [...PAGE.matchAll(/^```(\w+)\n([\s\S]*?)^```$/gm)]
    .filter((match) => match[1] === language)
    .map(([, , text = '']) => text);

/** The commands of the page that begin with `npx pawl` and these words, without comment and redirection. */
function commandsOf(beginning: string): readonly (readonly string[])[] {
  const lines = blocks('sh').flatMap((text) => text.split('\n'));
  const found = lines.filter((line) => line.startsWith(`npx pawl ${beginning}`));
  if (found.length === 0) throw new Error(`docs/tutorial.md has no command npx pawl ${beginning}`);
  return found.map((line) =>
    [...line.replace(/ +[#<].*$/, '').matchAll(/'([^']*)'|(\S+)/g)]
      .map(([, quoted, plain]) => quoted ?? plain ?? '')
      .slice(2),
  );
}

test('the commands of docs/tutorial.md lead to an approved call that runs once', async () => {
  const place = await openPlace();
  onTestFinished(() => place[Symbol.asyncDispose]());
  const [tools = ''] = blocks('ts');
  writeFileSync(join(place.folder, 'shop-tools.ts'), tools);
  mkdirSync(join(place.folder, 'shop'));
  const env = { PAWL_WORKSPACE_ROOT: join(place.folder, 'shop') };
  const [up = []] = commandsOf('up');
  const stack = place.start(up, { ...env, PAWL_HTTP_PORT: '0' });
  await stack.line('Ctrl-C drains');

  const [price = []] = commandsOf('call price');
  const [shown = ''] = blocks('json');
  expect((await place.run(price, { env })).stdout).toBe(shown);
  expect(JSON.parse((await place.run([...price, '--json'], { env })).stdout)).toMatchObject({ fromCache: true });

  const [ask = [], again = [], other = []] = commandsOf('call pay');
  const asked = place.start(ask, env);
  asked.endInput();
  const pending = async () => JSON.parse((await place.run(['approvals', '--json'], { env })).stdout).approvals;
  await expect.poll(pending, { timeout: 30_000 }).toHaveLength(1);
  const [{ id }] = await pending();
  const approve = commandsOf('approvals approve')[0]?.map((word) => (word === 'ID' ? id : word)) ?? [];
  expect((await place.run(approve, { env })).code).toBe(0);
  expect((await asked.ended).code).toBe(0);
  expect(asked.stdout()).toContain('Paid 90 euros to Ada.');

  expect(await place.run(again, { env })).toMatchObject({ code: 0, stdout: 'Paid 90 euros to Ada.\n' });
  expect((await place.run(other, { env })).stderr).toContain('IDEMPOTENCY_CONFLICT');
  const [audit = []] = commandsOf('audit ls');
  expect((await place.run(audit, { env })).stdout.match(/ attempt /g)).toHaveLength(1);

  stack.signal('SIGTERM');
  await stack.ended;
});
