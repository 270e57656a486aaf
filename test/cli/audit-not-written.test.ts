import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { eventually } from '../helpers/signal.ts';
import { openPlace } from './pawl.ts';

test('an API process that cannot write its audit files logs the failure, counts each retry, and loses no record', async () => {
  const place = await openPlace();
  onTestFinished(() => place[Symbol.asyncDispose]());
  const folder = join(place.folder, '.pawl', 'audit');
  mkdirSync(join(place.folder, '.pawl'));
  writeFileSync(folder, 'no folder');
  const up = place.start(['up', '--port', '0', '--workers', '1', '--tools', 'tools.ts', '--json']);
  onTestFinished(async () => {
    up.signal('SIGKILL');
    await up.ended;
  });
  const { url } = JSON.parse(await up.line('"event":"ready"')) as { url: string };
  const failures = async () => {
    const text = await (await fetch(`${url}/metrics`)).text();
    return Number(/^openclaw_tool_audit_write_failures_total (\d+)$/m.exec(text)?.[1]);
  };
  const call = () => place.run(['call', 'greet', '--params', '{"name":"Eve"}']);
  expect((await call()).code).toBe(0);
  const before = await eventually(async () => (await failures()) || undefined, { what: 'a failure' });
  await eventually(async () => (await failures()) > before, { what: 'the next try' });
  expect(await up.line('"event":"audit_files"')).toContain(folder);
  rmSync(folder);
  await eventually(async () => (await place.run(['audit', 'verify'])).stdout.includes('in 1 file'), { what: 'a file' });
  expect(await failures()).toBeGreaterThan(before);
});
