// What `npm pack` and `npm publish` run: the checkout's package.json points at the TypeScript sources, the published
// one at bundled JavaScript with types. `prepare` builds dist and puts the published package.json in place; `restore` undoes it;
// `manifest` prints it; `bundle FOLDER` writes the JavaScript alone. `image` makes optional peers that an image needs dependencies, before `npm install --omit=dev`.
// The original is kept aside meanwhile, so that a crash between the two is mended by running either again.

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire, isBuiltin } from 'node:module';
import { dirname, extname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const MANIFEST = join(ROOT, 'package.json');
const KEPT_ASIDE = join(ROOT, '.package.json.unpacked');

/** @param {string} original the checkout's package.json */
function published(original) {
  const manifest = JSON.parse(original);
  const exports = Object.fromEntries(
    Object.entries(manifest.exports).map(([name, target]) => {
      const source = /^\.\/src\/(?<module>.+)\.ts$/.exec(target)?.groups;
      if (source === undefined) return [name, target];
      return [name, { types: `./dist/${source.module}.d.ts`, default: `./dist/${source.module}.js` }];
    }),
  );
  // Those belong to the checkout; `postinstall` would run on the machine of whoever installs the package. The other
  // scripts stay, so that after a crash `npm pack` still finds its own.
  const { scripts, devDependencies, overrides, allowScripts, ...rest } = manifest;
  const { postinstall, ...kept } = scripts;
  const dependencies = Object.fromEntries(
    Object.entries(rest.dependencies).filter(([name]) => !INLINED.includes(name) || OF_TYPES.includes(name)),
  );
  return `${JSON.stringify({ ...rest, dependencies, exports, types: exports['.'].types, scripts: kept }, null, 2)}\n`;
}

function restore() {
  if (!existsSync(KEPT_ASIDE)) return;
  const original = readFileSync(KEPT_ASIDE, 'utf8');
  const current = readFileSync(MANIFEST, 'utf8');
  if (current !== original && current !== published(original)) {
    throw new Error(`${MANIFEST} was changed while ${KEPT_ASIDE} was kept aside: merge the two by hand.`);
  }
  renameSync(KEPT_ASIDE, MANIFEST);
}

/** What Pawl starts in processes and threads. */
const PROCESSES = ['cli', 'cli/processes/watchdog-thread', 'shared/schema/schema-thread-main'];

/** `pawl demo`, which is an example: the package has it in `dist/demo`. */
const EXAMPLES = ['demo/demo', 'demo/worker-main'];

/** The modules that a program can import. */
function exported() {
  const { exports } = JSON.parse(readFileSync(existsSync(KEPT_ASIDE) ? KEPT_ASIDE : MANIFEST, 'utf8'));
  const modules = Object.values(exports).map((target) => /^\.\/src\/(?<module>.+)\.ts$/.exec(target)?.groups.module);
  return modules.filter((name) => name !== undefined);
}

const entries = () => [...exported(), ...PROCESSES];

async function build() {
  const dist = join(ROOT, 'dist');
  rmSync(dist, { recursive: true, force: true });
  const require = createRequire(import.meta.url);
  const compiler = join(dirname(require.resolve('typescript/package.json')), 'bin', 'tsc');
  const run = spawnSync(process.execPath, [compiler, '-p', 'tsconfig.build.json', '--emitDeclarationOnly'], {
    cwd: ROOT,
    stdio: ['ignore', 2, 2],
  });
  if (run.status !== 0) throw new Error('The build failed; see the errors above.');
  keepReachableTypes(dist);
  await bundle(dist);
}

/** Removes the declarations that no public one refers to. */
function keepReachableTypes(dist) {
  const reached = new Set();
  const open = exported().map((name) => join(dist, `${name}.d.ts`));
  for (let file = open.pop(); file !== undefined; file = open.pop()) {
    if (reached.has(file)) continue;
    reached.add(file);
    for (const [, path] of readFileSync(file, 'utf8').matchAll(/(?:from|import)\s*\(?\s*['"](\.[^'"]+)\.ts['"]/g))
      open.push(join(dirname(file), `${path}.d.ts`));
  }
  for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile() && !reached.has(path)) rmSync(path);
  }
}

/**
 * Libraries that a process loads when it starts, or soon after: one file is loaded several times as fast as two hundred. All others stay
 * outside, and the optional packages of these, too.
 */
const INLINED = ['bullmq', 'ioredis', 'commander', 'opossum', 'ignore', 'ajv', 'ajv-formats', 'pino'];
const OPTIONAL = ['msgpackr-extract', 'pg'];
/** The inlined libraries that the published types refer to, so that the package still depends on them. */
const OF_TYPES = ['bullmq', 'ioredis'];
/** BullMQ as ECMAScript modules, of which unused ones are left out. */
const BULLMQ = join(ROOT, 'node_modules/bullmq/dist/esm/index.js');

/** @param {string} id what is imported @param {string | undefined} importer the module that does */
function staysOutside(id, importer) {
  if (/^[./]/.test(id)) return false;
  const [name] = /^(?:@[^/]+\/)?[^/]+/.exec(id);
  if (isBuiltin(id) || OPTIONAL.includes(name)) return true;
  return importer?.includes('/node_modules/') !== true && !INLINED.includes(name);
}

/** The modules that are loaded together, each with all that it imports. */
const LOADED_TOGETHER = {
  adapters: ['openai', 'anthropic', 'ai-sdk', 'langchain'].map((name) => `producer/adapters/${name}.ts`),
  command: ['cli.ts'],
  library: ['main.ts'],
  program: ['index.ts'],
  producer: ['producer/client.ts'],
  worker: ['workers/worker.ts', 'workers/context/memory.ts', 'workers/workspace/code-files.ts'],
};

/** Names the file of a module after all that it is loaded for; the others get the files that Rolldown chooses. */
function fileNames(source) {
  let sets;
  // Each entry is a file that first loads the one that says which Node is needed. Rolldown does not put into one file again what loads
  // a file that needs it: that is `main`.
  const alone = ['node-version', 'main', ...entries()].map((name) => join(source, `${name}.ts`));
  return (id, context) => {
    if (alone.includes(id)) return null;
    sets ??= Object.entries(LOADED_TOGETHER).map(([name, files]) => [
      name,
      reachable(
        files.map((file) => join(source, file)),
        context,
      ),
    ]);
    const names = sets.filter(([, modules]) => modules.has(id)).map(([name]) => name);
    return names.length === 0 ? null : names.join('-');
  };
}

function reachable(files, context) {
  const reached = new Set();
  const open = [...files];
  for (let id = open.pop(); id !== undefined; id = open.pop()) {
    if (reached.has(id)) continue;
    reached.add(id);
    open.push(...(context.getModuleInfo(id)?.importedIds ?? []));
  }
  return reached;
}

/**
 * Writes the JavaScript of Pawl to a folder, as one file for each set of modules that is loaded together: a worker loads some ten
 * files instead of some six hundred, which is a quarter of its start.
 */
async function bundle(dist) {
  const { rolldown } = await import('rolldown');
  const [source, examples] = [join(ROOT, 'src'), join(ROOT, 'examples')];
  const build = await rolldown({
    input: Object.fromEntries([
      ...entries().map((name) => [name, join(source, `${name}.ts`)]),
      ...EXAMPLES.map((name) => [name, join(examples, `${name}.ts`)]),
    ]),
    platform: 'node',
    external: staysOutside,
    resolve: { alias: { bullmq: BULLMQ } },
    treeshake: { moduleSideEffects: [{ test: /\/node_modules\/(?:bullmq|semver)\//, sideEffects: false }] },
    preserveEntrySignatures: 'allow-extension',
    logLevel: 'warn',
    plugins: [inlineRequired, keepPlaces([source, examples]), onlyAscii],
  });
  const { output } = await build.write({
    dir: dist,
    entryFileNames: '[name].js',
    chunkFileNames: 'chunks/[name]-[hash].js',
    comments: false,
    codeSplitting: {
      includeDependenciesRecursively: false,
      groups: [{ name: fileNames(source), debugName: 'loaded together' }],
    },
  });
  await build.close();
  writeFileSync(join(dist, 'LICENSES.txt'), licencesOf(output.flatMap(({ moduleIds = [] }) => moduleIds)));
  copyAssets(source, dist);
}

/** Lets Rolldown see what a module loads at its first use. It is still loaded then. */
const inlineRequired = {
  name: 'inline-required',
  transform: (code) => code.replace('const require = createRequire(import.meta.url);', ''),
};

/** V8 keeps a text in which one character is not of Latin-1 in twice the bytes. */
const onlyAscii = {
  name: 'only-ascii',
  renderChunk: (code) =>
    code.replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
};

/** The licences of the libraries whose modules are among these. */
function licencesOf(modules) {
  const folders = modules.map((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id)?.[0]).filter(Boolean);
  return [...new Set(folders)]
    .sort()
    .map((folder) => {
      const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
      const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
      const text = file === undefined ? `${license}\n` : readFileSync(join(folder, file), 'utf8');
      return `${name} ${version}\n\n${text}`;
    })
    .join(`\n${'-'.repeat(80)}\n\n`);
}

/**
 * Modules find files beside them by `import.meta.url`, which goes on naming the module's own place in the tree. No file is there, so
 * the place is written in a form in which webpack does not look for one. A bundle of CommonJS has no `import.meta.url`.
 */
function keepPlaces(roots) {
  return {
    name: 'keep-places',
    transform(code, id) {
      // Rolldown's own `require` runs when it is loaded, even if nothing is required.
      if (id.includes('rolldown/runtime')) return code.replaceAll('import.meta.url', '(import.meta.url || __filename)');
      const root = roots.find((folder) => id.startsWith(folder)) ?? ROOT;
      const place = relative(root, id).replaceAll('\\', '/').replace(/\.ts$/, '.js');
      return code.includes('import.meta.url') ? code.replaceAll('import.meta.url', `PLACE_OF("${place}")`) : null;
    },
    renderChunk: (code, { fileName }) =>
      code.replaceAll(/PLACE_OF\("(?<place>[^"]+)"\)/g, (_all, place) => {
        const path = relative(dirname(fileName), place).replaceAll('\\', '/');
        return `(import.meta.url && new URL("${path.startsWith('.') ? path : `./${path}`}", String(import.meta.url)).href)`;
      }),
  };
}

/** Lua scripts, pages and schemas are read at run time, by their address relative to the module. */
function copyAssets(source, dist) {
  for (const entry of readdirSync(source, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile() && extname(path) !== '.ts') cpSync(path, join(dist, relative(source, path)));
  }
}

async function prepare() {
  restore();
  await build();
  const original = readFileSync(MANIFEST, 'utf8');
  writeFileSync(KEPT_ASIDE, original);
  writeFileSync(MANIFEST, published(original));
}

function manifest() {
  process.stdout.write(published(readFileSync(existsSync(KEPT_ASIDE) ? KEPT_ASIDE : MANIFEST, 'utf8')));
}

/** Adapters' peers are of the program that uses them; LanceDB is larger than all the rest together. */
const NOT_IN_IMAGE = ['@lancedb/lancedb', 'apache-arrow', '@langchain/core', 'ai'];

function image() {
  const manifest = JSON.parse(readFileSync(MANIFEST, 'utf8'));
  for (const name of Object.keys(manifest.peerDependencies)) {
    if (NOT_IN_IMAGE.includes(name)) continue;
    manifest.dependencies[name] = manifest.devDependencies[name];
    delete manifest.devDependencies[name];
    delete manifest.peerDependencies[name];
  }
  writeFileSync(MANIFEST, `${JSON.stringify(manifest, null, 2)}\n`);
}

const steps = { build, bundle: () => bundle(process.argv[3]), prepare, restore, manifest, image };
const step = steps[process.argv[2]];
if (step === undefined) {
  process.stderr.write(`usage: node scripts/pack.mjs ${Object.keys(steps).join('|')}\n`);
  process.exitCode = 2;
} else {
  try {
    await step();
  } catch (error) {
    process.stderr.write(`pack: ${error.message}\n`);
    process.exitCode = 1;
  }
}
