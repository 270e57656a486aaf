/**
 * Protects what a worker's process, and the next process of its folder, executes, loads, or reads as instructions from the calls that it
 * runs. `workers/workspace/protected-paths.ts` enforces it.
 */
import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs';
import nodeModule from 'node:module';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Settings } from './shared/config/config.ts';
import { CONFIG_JSON, CONFIG_MODULES } from './shared/config/config-files.ts';
import { blobFolder } from './shared/config/setting-types.ts';
import { type Environment, SECRET_VARIABLES, variableText } from './shared/config/variables.ts';
import { readOnlyPathsOf } from './shared/policy/read-only-paths.ts';
import { tenantsFolder } from './shared/policy/workspace-root.ts';
import { userCacheFolder } from './shared/store/redis/redis-binary.ts';
import { liesIn } from './shared/util/file-path.ts';
import { orUndefined } from './shared/util/or-undefined.ts';
import { codeNames, importsOf, linksOnPath, packageLookupNames } from './workers/workspace/code-files.ts';
import {
  protectCode,
  protectFile,
  protectFolder,
  protectOwnerFiles,
  realName,
  realPaths,
} from './workers/workspace/protected-paths.ts';
import { addWorkspaceFolder, forbiddenReason } from './workers/workspace/workspace-roots.ts';

/** Variables that name what this process, its next start or a program that it starts loads: a list of folders or files, or one of them. */
const LOADED_LISTS = `NODE_PATH LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT
  DYLD_LIBRARY_PATH DYLD_FRAMEWORK_PATH DYLD_INSERT_LIBRARIES`.split(/\s+/);
const LOADED_PATHS =
  `NODE_COMPILE_CACHE APT_CONFIG DOCKER_CONFIG NODE_EXTRA_CA_CERTS SSL_CERT_FILE SSL_CERT_DIR OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES
  OTEL_EXPORTER_OTLP_CERTIFICATE OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE`.split(/\s+/);

const OWN_FOLDER = fileURLToPath(new URL('..', import.meta.url));
/** The files that a checkout runs. An installed package is protected as a whole. */
const OWN_CODE =
  `bin src dist scripts schemas dashboards docker package.json package-lock.json .npmrc tsconfig.json tsconfig.build.json
  vitest.config.ts biome.json .ci docker-compose.yml Dockerfile`.split(/\s+/);

/** Protects all of it for a worker with these settings. */
export function protectProcess(settings: Settings, cwd: string, environment: Environment): void {
  for (const folder of hiddenFolders(settings)) protectFolder(resolve(cwd, folder));
  // It may hold tokens and keys, and what stands there at the next start is done.
  for (const name of [CONFIG_JSON, ...CONFIG_MODULES]) protectFile(join(cwd, name));
  const hidden = [
    ...secretFiles(environment),
    ...redisFiles(settings),
    ...nodeOptions(environment, /^--env-file(?:-if-exists)?$/),
    ...[variableText(environment, 'OTEL_EXPORTER_OTLP_CLIENT_KEY') ?? []].flat(),
  ].map((file) => resolve(cwd, file));
  for (const file of [...hidden.map(realName), ...realPaths(hidden)]) protectFile(file);
  for (const path of settings.skillFolders.flatMap((folder) => skillPaths(resolve(cwd, folder)))) protectCode(path);
  for (const name of codeNames(settings.connectors.secrets.programs)) protectCode(name);
  for (const path of loadedPaths(cwd, environment)) protectCode(path);
  protectOwnCode(cwd, environment);
  protectOwnerFiles(readOnlyPathsOf(settings.readOnlyPaths));
  // Calls can write in this folder, and so replace folders in it by links.
  const workspaces = settings.workspaceRoot ?? (forbiddenReason(cwd) === undefined ? cwd : undefined);
  if (workspaces !== undefined) addWorkspaceFolder(workspaces);
}

/** Protects the files that this process, and the next one that is started in this folder, executes and loads. */
export function protectOwnCode(cwd: string, environment: Environment): void {
  const configs = CONFIG_MODULES.map((name) => join(cwd, name)).filter((file) => existsSync(file));
  const isInstalled = OWN_FOLDER.includes('/node_modules/');
  const ownCode = isInstalled
    ? [OWN_FOLDER]
    : OWN_CODE.map((name) => join(OWN_FOLDER, name)).filter((path) => existsSync(path));
  const names = [
    ...ownCode,
    ...packageLookupNames(join(OWN_FOLDER, 'package.json')),
    ...packageLookupNames(join(cwd, 'package.json')).filter((path) => basename(path) === 'node_modules'),
    ...codeNames(
      [...programFiles(cwd, environment), ...configs],
      realPaths(ownCode),
      loadsTypeScript(environment),
    ).filter((path) => !configs.includes(path)),
    ...plugAndPlayNames(environment),
    process.execPath,
    realpathSync(process.execPath),
    join(userCacheFolder(), 'pawl'),
    ...[nodeModule.getCompileCacheDir?.() ?? []].flat(),
  ];
  for (const name of names) protectCode(name);
}

/** The folders whose content calls may neither read nor change. An address such as `s3://…` is no folder. */
function hiddenFolders(settings: Settings): readonly string[] {
  const { dataDir, audit, memory, blobStore, connectors } = settings;
  const named = [audit.folder, memory.uri, blobFolder(blobStore)].filter((path) => path !== undefined);
  const kept = named.filter((path) => !/^\w+:\/\//.test(path));
  return [dataDir, tenantsFolder(settings), ...kept, ...connectors.secrets.folders];
}

/** The files that hold secrets of this process. A pipe, as a shell's `<(…)` makes one, is read once and is no file. */
function secretFiles(environment: Environment): readonly string[] {
  const named = SECRET_VARIABLES.flatMap((name) => variableText(environment, `${name}_FILE`) ?? []);
  return named.filter((file) => statSync(file, { throwIfNoEntry: false })?.isFile() === true);
}

/** The certificates and keys that the addresses of Redis name. */
function redisFiles({ redisUrl = '', boardRedisUrl = '' }: Settings): readonly string[] {
  const parts = `${redisUrl} ${boardRedisUrl}`.matchAll(/[?&](?:ca|cert|key)=([^&,#\s]+)/g);
  return [...parts].flatMap(([, value]) => new URLSearchParams(`path=${value}`).get('path') ?? []);
}

/** A folder of skills, and what the links on its path and in it lead to. */
function skillPaths(folder: string): readonly string[] {
  const names = statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true ? readdirSync(folder) : [];
  const files = ['', ...names].flatMap((name) => [join(folder, name), join(folder, name, 'SKILL.md')]);
  return [folder, ...linksOnPath(folder), ...realPaths(files)];
}

/** Yarn's Plug'n'Play loads packages from these, in place of `node_modules`. */
function plugAndPlayNames(environment: Environment): readonly string[] {
  const maps = nodeOptions(environment, LOADER_OPTIONS).filter((name) => basename(name) === '.pnp.cjs');
  const names = ['.pnp.cjs', '.pnp.data.json', '.pnp.loader.mjs', '.yarn/cache', '.yarn/unplugged'];
  return maps.flatMap((map) => names.map((name) => join(dirname(map), name)));
}

/** Node takes a percent sign that encodes nothing as it is. */
function decoded(url: string): string {
  return orUndefined(() => decodeURIComponent(url)) ?? url;
}

const LOADER_OPTIONS = /^(?:-r|--require|--import|--loader|--experimental-loader)$/;

/** Whether Node was started with a loader of TypeScript. */
export function loadsTypeScript(environment: Environment): boolean {
  return nodeOptions(environment, LOADER_OPTIONS).some((name) => /\b(?:tsx|ts-node|swc-node)\b/.test(name));
}

/** The file that Node was started with, and those that it loads before. */
function programFiles(cwd: string, environment: Environment): readonly string[] {
  const loaders = nodeOptions(environment, LOADER_OPTIONS);
  // Code on the command line, and modules, which may be packages that are links, or texts of code.
  const given = [
    ...loaders.map((each) => (each.startsWith('data:') ? decoded(each) : `import ${JSON.stringify(each)}`)),
    ...nodeOptions(environment, /^(?:-e|--eval|-p|--print|-pe)$/),
  ];
  const modules = given.flatMap((code) => importsOf(join(cwd, '[eval]'), code));
  const configs = [
    ...nodeOptions(environment, /^--(?:experimental-config-file|openssl-config|snapshot-blob)$/),
    ...([...process.execArgv, environment['NODE_OPTIONS'] ?? ''].some((each) => each.includes('-default-config-file'))
      ? ['node.config.json']
      : []),
  ];
  // It maps the names of packages to files.
  const mapping = loadsTypeScript(environment)
    ? [environment['TSX_TSCONFIG_PATH'] ?? environment['TS_NODE_PROJECT'] ?? 'tsconfig.json']
    : [];
  const started = process.argv[1] === undefined ? [] : [process.argv[1]];
  return [...started, ...[...modules, ...configs, ...mapping].map((path) => resolve(cwd, path))];
}

/** Without a folder that holds the current one: then the whole workspace would be read-only. */
function loadedPaths(cwd: string, environment: Environment): readonly string[] {
  const named = [
    ...LOADED_LISTS.flatMap((name) => (environment[name] ?? '').split(/[:;\s]/)),
    ...LOADED_PATHS.map((name) => environment[name] ?? ''),
  ];
  const paths = named.filter(Boolean).map((path) => resolve(cwd, path));
  return [...paths, ...realPaths(paths)].filter((path) => !liesIn(path, realName(cwd)) && !liesIn(path, cwd));
}

/** The values of the options with these names that Node was started with. */
function nodeOptions(environment: Environment, name: RegExp): readonly string[] {
  const inVariable = (environment['NODE_OPTIONS'] ?? '').match(/(?:[^\s"]|"(?:[^"\\]|\\.)*")+/g) ?? [];
  const options = [...process.execArgv, ...inVariable.map((option) => option.replaceAll(/\\(.)|"/g, '$1'))];
  return options.flatMap((option, index) => {
    const [, optionName = option, value = options[index + 1] ?? ''] = /^([^=]+)=(.*)$/s.exec(option) ?? [];
    // Node takes underscores for dashes.
    return name.test(optionName.replaceAll('_', '-')) && value !== '' ? [value] : [];
  });
}
