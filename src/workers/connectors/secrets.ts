/**
 * Secrets of connectors: a declaration names the source of each, and the worker that runs a call reads it. The
 * worker's own configuration decides which sources it reads; no declaration can ask for more.
 */
import { execFile } from 'node:child_process';
import { readFile, realpath } from 'node:fs/promises';
import { sep } from 'node:path';
import { promisify } from 'node:util';
import type { Settings } from '../../shared/config/config.ts';
import { SECRET_VARIABLES } from '../../shared/config/variables.ts';
import type { SecretSource } from '../../shared/connectors/connector.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { matches } from '../../shared/util/wildcard.ts';

const run = promisify(execFile);
/** The output of a program and the content of a file are cached this long. A changed secret takes effect without a restart. */
const CACHE_MS = 60_000;
const PROGRAM_TIMEOUT_MS = 10_000;
const MAX_BYTES = 64 * 1_024;

export class ConnectorSecrets {
  readonly #allowed: Settings['connectors']['secrets'];
  readonly #environment: Readonly<Record<string, string | undefined>>;
  readonly #cached = new Map<string, { readonly atMs: number; readonly value: Promise<string> }>();

  constructor(allowed: Settings['connectors']['secrets'], environment: Readonly<Record<string, string | undefined>>) {
    this.#allowed = allowed;
    this.#environment = environment;
  }

  /** Throws `PERMISSION_DENIED` for a source that this worker's configuration does not allow, and `CONFIGURATION` for an empty one. */
  async resolve(secrets: Readonly<Record<string, SecretSource>>): Promise<ReadonlyMap<string, string>> {
    const resolved = await Promise.all(
      Object.entries(secrets).map(async ([name, source]) => [name, await this.#lookUp(source)] as const),
    );
    return new Map(resolved);
  }

  #lookUp(source: SecretSource): Promise<string> {
    const key = JSON.stringify(source);
    const nowMs = performance.now();
    const cached = this.#cached.get(key);
    if (cached !== undefined && nowMs - cached.atMs < CACHE_MS) return cached.value;
    const value = this.#read(source);
    this.#cached.set(key, { atMs: nowMs, value });
    value.catch(() => this.#cached.delete(key));
    return value;
  }

  async #read(source: SecretSource): Promise<string> {
    if ('env' in source) return this.#variable(source.env);
    if ('file' in source) return this.#file(source.file);
    return this.#program(source.exec);
  }

  #variable(name: string): string {
    const isSecretVariable = SECRET_VARIABLES.some((secret) => name === secret || name === `${secret}_FILE`);
    if (isSecretVariable || !this.#allowed.environment.some((pattern) => matches(pattern, name)))
      throw sourceNotAllowed(`the variable ${name}`, 'connectors.secrets.environment');
    const value = this.#environment[name];
    if (value === undefined || value === '') throw missingSecret(`the variable ${name} is not set`);
    return value;
  }

  async #file(file: string): Promise<string> {
    const folders = await Promise.all(this.#allowed.folders.map((folder) => realpath(folder).catch(() => folder)));
    const path = await realpath(file).catch(() => undefined);
    if (path === undefined || !folders.some((folder) => path.startsWith(`${folder}${sep}`)))
      throw sourceNotAllowed(`the file ${file}`, 'connectors.secrets.folders');
    const content = await readFile(path, 'utf8').catch(() => undefined);
    if (content === undefined || content.trim() === '' || content.length > MAX_BYTES)
      throw missingSecret(`the file ${file} holds no value`);
    return content.trim();
  }

  async #program([program, ...args]: readonly [string, ...string[]]): Promise<string> {
    if (!this.#allowed.programs.includes(program))
      throw sourceNotAllowed(`the program ${program}`, 'connectors.secrets.programs');
    try {
      const { PATH: path = '' } = this.#environment;
      const { stdout } = await run(program, args, {
        timeout: PROGRAM_TIMEOUT_MS,
        maxBuffer: MAX_BYTES,
        env: { PATH: path },
        cwd: '/',
      });
      if (stdout.trim() !== '') return stdout.trim();
    } catch {
      // The program's own message may hold the secret, so it is dropped.
    }
    throw missingSecret(`the program ${program} gave none`);
  }
}

function sourceNotAllowed(subject: string, setting: string): PawlError {
  return new PawlError(
    'PERMISSION_DENIED',
    `This worker's configuration does not give connectors ${subject}; to allow it, name it in ${setting}.`,
  );
}

function missingSecret(reason: string): PawlError {
  return new PawlError('CONFIGURATION', `A secret of the connector is missing in this worker: ${reason}.`);
}
