#!/usr/bin/env node
// The launcher. In a checkout it first sees to a Node that is new enough and to the dependencies, and runs the sources;
// in an installed package it runs the build. Imports nothing but Node, and must run on Node 20.

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import module from 'node:module';
import { Socket } from 'node:net';
import { constants, homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Names the descriptor that a re-executed Pawl holds to its launcher: its end is the launcher's end. */
const LAUNCHER_DESCRIPTOR = 'PAWL_LAUNCHER_DESCRIPTOR';

const source = new URL('../src/cli.ts', import.meta.url);
const inCheckout = existsSync(source);
const node = inCheckout ? await checkoutNode() : process.execPath;

if (node !== process.execPath) {
  process.exitCode = await runUnder(node);
} else {
  endWithLauncher();
  await run();
}

/** Answers which Node to run with; downloads it and the dependencies where they are missing. */
async function checkoutNode() {
  const { ensureOrExit } = await import('../scripts/ensure-node.mjs');
  return ensureOrExit({ install: true, development: false });
}

async function run() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major < 22 || (major === 22 && minor < 22)) {
    process.stderr.write(`pawl: needs Node 22.22 or later; this is ${process.versions.node} (https://nodejs.org)\n`);
    process.exitCode = 2;
    return;
  }
  if (inCheckout && major < 24) silenceTypeStrippingWarning();
  module.enableCompileCache?.(compiledCodeFolder());
  const { main } = await import(inCheckout ? source.href : new URL('../dist/cli.js', import.meta.url).href);
  process.exitCode = await main(process.argv.slice(2));
}

/**
 * Compiled code is kept between commands: a third of a short command's time in a checkout, and an eighth of it in an installed
 * package, whose own folder may be another user's. Where nothing can be written, Node goes on without.
 */
function compiledCodeFolder() {
  if (inCheckout) return fileURLToPath(new URL('../node_modules/.cache/pawl', import.meta.url));
  return join(homedir(), '.cache', 'pawl', 'compiled');
}

/** Node 22 warns about every process that runs TypeScript, which is how this checkout is meant to run. */
function silenceTypeStrippingWarning() {
  const emitWarning = process.emitWarning;
  process.emitWarning = (warning, ...rest) => {
    if (String(warning).startsWith('Type Stripping')) return;
    emitWarning.call(process, warning, ...rest);
  };
}

/** Runs this same command under another Node: same terminal, signals passed on, its ending becomes ours. */
function runUnder(executable) {
  return new Promise((resolve) => {
    const child = spawn(executable, [...process.execArgv, fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
      stdio: ['inherit', 'inherit', 'inherit', 'pipe'],
      env: { ...process.env, [LAUNCHER_DESCRIPTOR]: '3' },
    });
    for (const signal of ['SIGTERM', 'SIGHUP', 'SIGUSR2', 'SIGINT']) {
      process.on(signal, () => {
        // A terminal sends Ctrl-C to the whole group: passed on, it would count as a second, impatient one.
        if (signal === 'SIGINT' && process.stdin.isTTY) return;
        child.kill(signal);
      });
    }
    child.on('error', (error) => {
      process.stderr.write(`pawl: ${executable} could not be started: ${error.message}\n`);
      resolve(2);
    });
    child.on('exit', (code, signal) => resolve(code ?? 128 + (constants.signals[signal] ?? 0)));
  });
}

/** Kill -9 of a launcher must end Pawl too: whoever ends the command it started means Pawl. */
function endWithLauncher() {
  const descriptor = process.env[LAUNCHER_DESCRIPTOR];
  if (descriptor === undefined) return;
  delete process.env[LAUNCHER_DESCRIPTOR];
  const line = new Socket({ fd: Number(descriptor), readable: true, writable: false });
  line.on('close', () => process.kill(process.pid, 'SIGKILL'));
  line.on('error', () => {});
  line.resume();
  line.unref();
}
