/** Packages that only some features need: users install them beside Pawl, and each is loaded when its feature is first used. */
import { PawlError, reasonOf } from './failure.ts';

/** A feature of its own packages. `purpose` begins sentences. */
interface OptionalFeature {
  readonly purpose: string;
  readonly packages: readonly string[];
}

export const OPTIONAL_FEATURES = {
  traces: {
    purpose: 'Sending traces to a collector',
    packages: ['@opentelemetry/sdk-node', '@opentelemetry/sdk-trace', '@opentelemetry/exporter-trace-otlp-http'],
  },
  mcpServers: {
    purpose: 'Calling tools of MCP servers',
    packages: ['@modelcontextprotocol/client'],
  },
  webPages: {
    purpose: 'The main content of web pages as Markdown',
    packages: ['@mozilla/readability', 'linkedom', 'turndown'],
  },
  board: {
    purpose: 'Bull Board at /queues',
    packages: ['@bull-board/api', '@bull-board/express'],
  },
  terminals: {
    purpose: 'A command in a terminal',
    packages: ['@lydell/node-pty'],
  },
  largeMemory: {
    purpose: 'Memory in LanceDB',
    packages: ['@lancedb/lancedb', 'apache-arrow'],
  },
} as const satisfies Readonly<Record<string, OptionalFeature>>;

export type OptionalFeatureName = keyof typeof OPTIONAL_FEATURES;

/** Loads what a feature needs. Throws `CONFIGURATION`, with the command that installs it. */
export async function loadOptional<Loaded>(name: OptionalFeatureName, load: () => Promise<Loaded>): Promise<Loaded> {
  try {
    return await load();
  } catch (error) {
    throw missingPackages(name, error);
  }
}

/** Loads the peer of an adapter, which belongs to the program that uses it. Throws `CONFIGURATION`, with the command that installs it. */
export async function loadPeer<Loaded>(adapter: string, name: string, load: () => Promise<Loaded>): Promise<Loaded> {
  try {
    return await load();
  } catch (error) {
    throw notLoaded(adapter, [name], error, 'restart the program');
  }
}

/**
 * The `CONFIGURATION` error of a feature whose packages are missing or cannot be loaded here. `instead` is what a caller can do without.
 * A process must be restarted after the installation: Node remembers which packages it did not find.
 */
export function missingPackages(name: OptionalFeatureName, cause: unknown, instead?: string): PawlError {
  const { purpose, packages } = OPTIONAL_FEATURES[name];
  return notLoaded(purpose, packages, cause, `restart Pawl${instead === undefined ? '' : `; or ${instead}`}`);
}

function notLoaded(purpose: string, packages: readonly string[], cause: unknown, next: string): PawlError {
  const [reason = ''] = reasonOf(cause).split('\n');
  const names = new Intl.ListFormat('en').format(packages);
  return new PawlError(
    'CONFIGURATION',
    `${purpose} needs ${names}, which cannot be loaded: ${installCommand(packages)}, and ${next}. (${withoutFolders(reason)})`,
    { cause },
  );
}

/** Callers and models read the reason, and must not learn where Pawl is installed. */
function withoutFolders(reason: string): string {
  return reason.replace(/ imported from .*$/, '').replaceAll(/(?<=^|[\s'"(])(?:file:\/\/)?\/\S*\//g, '');
}

export function installCommand(packages: readonly string[]): string {
  return `npm install ${packages.join(' ')}`;
}
