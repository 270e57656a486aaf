import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rolldown } from 'rolldown';
import { expect, inject, onTestFinished, test } from 'vitest';
import { startScript } from './helpers/process.ts';

/** A program's folder, in which Pawl is installed as it is published. */
function programFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-bundled-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'package.json'), '{"name":"program","version":"9.9.9"}');
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(inject('builtPackage'), join(folder, 'node_modules/pawl'));
  return folder;
}

/** Bundles `source` and runs it. */
async function run(
  source: string,
  { format = 'esm', external = [] }: { readonly format?: 'esm' | 'cjs'; readonly external?: readonly RegExp[] } = {},
) {
  const folder = programFolder();
  writeFileSync(join(folder, 'program.mjs'), source);
  const bundle = await rolldown({
    input: join(folder, 'program.mjs'),
    platform: 'node',
    external: [...external, '@lancedb/lancedb', 'apache-arrow', '@lydell/node-pty'],
    logLevel: 'silent',
  });
  const file = join(folder, `dist/program.${format === 'esm' ? 'mjs' : 'cjs'}`);
  // One file, wherever it may be taken to.
  await bundle.write({ file, format, codeSplitting: false });
  await bundle.close();
  // Other bundlers than Rolldown leave a bundle of CommonJS without an address of its own.
  if (format === 'cjs') writeFileSync(file, withoutAddress(readFileSync(file, 'utf8')));
  const started = startScript(file, [], { cwd: folder });
  const { code } = await started.ended;
  return { code, said: started.stdout() + started.stderr() };
}

function withoutAddress(code: string): string {
  return code.replaceAll(/require\(['"]url['"]\)\.pathToFileURL\(__filename\)\.href/g, 'undefined');
}

const program = (entry: string, name: string) =>
  `import { ${name} } from '${entry}';\nconsole.log('loaded', typeof ${name});\n`;

test.each([
  ['pawl', 'connect', 'esm'],
  ['pawl', 'connect', 'cjs'],
  ['pawl/testing', 'runTool', 'esm'],
] as const)('a program that was bundled with %s (%s, %s) says how to keep it out', async (entry, name, format) => {
  const { code, said } = await run(program(entry, name), { format });
  expect(code).toBe(1);
  expect(said).toContain('Pawl reads files beside its code and cannot run from a bundle');
  expect(said).toContain('Keep the package "pawl" external');
  expect(said).not.toContain('ENOENT');
});

test('a program that was bundled with Pawl external runs', async () => {
  const source = `import { runTool } from 'pawl/testing';
import { defineUntypedTool } from 'pawl';
const tool = defineUntypedTool({ name: 'a', version: '1.0.0', description: 'A.', tier: 'read-only',
  inputSchema: { type: 'object' }, run: () => ({ output: 'ran' }) });
console.log((await runTool(tool, {})).output.content);
`;
  expect(await run(source, { external: [/^pawl(\/|$)/] })).toMatchObject({ code: 0, said: 'ran\n' });
});

test('no place of a module is written in a form in which webpack looks for a file', () => {
  const folder = join(inject('builtPackage'), 'dist');
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.js'));
  const code = files.map((file) => readFileSync(join(folder, file), 'utf8')).join('\n');
  expect(code).toContain('import.meta.url');
  expect(code.match(/new URL\([^()]*,\s*import\.meta\.url\)/g)).toBeNull();
});

test.each(
  ['openai', 'anthropic', 'ai-sdk', 'langchain'].flatMap((entry) => [[entry, 'esm'] as const, [entry, 'cjs'] as const]),
)('what reads no files may be bundled: pawl/%s (%s)', async (entry, format) => {
  const { code, said } = await run(
    `import * as all from 'pawl/${entry}';\nconsole.log(Object.keys(all).length > 0);\n`,
    { format },
  );
  expect({ code, said }).toEqual({ code: 0, said: 'true\n' });
});

test('an adapter that was bundled without Pawl explains to the model what Pawl refuses', async () => {
  const source = `import { chatTools } from 'pawl/openai';
import { PawlError } from 'pawl';
const session = { toolsFor: async () => ({ tools: [] }), decode: async () => { throw new PawlError('INVALID_PARAMS', 'no such city'); } };
const { run } = await chatTools(session);
console.log((await run([{ id: '1', function: { name: 'weather', arguments: '{}' } }]))[0].content);
`;
  expect(await run(source, { external: [/^pawl$/] })).toEqual({ code: 0, said: 'INVALID_PARAMS: no such city\n' });
});
