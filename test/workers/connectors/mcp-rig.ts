/** A fleet that uses MCP servers, each with a folder of its own. */
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { type ImportOutcome, importServer } from '../../../src/cli/commands/import-mcp.ts';
import type { ImportPolicy } from '../../../src/shared/connectors/mcp.ts';
import type { McpConnectionOptions } from '../../../src/shared/connectors/mcp-routing.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { McpConnections } from '../../../src/workers/connectors/mcp/tools.ts';
import { type Fleet, type FleetOptions, startFleet } from '../../helpers/fleet.ts';
import { echo } from '../../helpers/tools.ts';

export const ODD_SERVER = fileURLToPath(new URL('./fixtures/mcp-server.mjs', import.meta.url));

export interface McpFleet extends Fleet {
  readonly folder: string;
  /** The name of the hand-written server. */
  odd(more?: Partial<McpConnectionOptions>): McpConnectionOptions;
  /** Imports the servers as `pawl tools import-mcp` does. */
  bring(
    server: string,
    connection?: McpConnectionOptions,
    policy?: ImportPolicy & { accept?: boolean },
  ): Promise<ImportOutcome>;
}

export async function temporaryFolder(): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'pawl-mcp-')));
  onTestFinished(() => rm(folder, { recursive: true, force: true, maxRetries: 3 }));
  return folder;
}

export async function startMcpFleet(options: Partial<FleetOptions> = {}): Promise<McpFleet> {
  const [folder, dataDir] = await Promise.all([temporaryFolder(), temporaryFolder()]);
  const fleet = await startFleet({
    tools: [echo],
    tiers: ['read-only', 'system'],
    ...options,
    // The sandbox has tests of its own, and costs each server a few hundred folders in its workspace.
    settings: { dataDir, sandbox: 'off', ...options.settings },
  });
  const environment = { ...process.env, ...options.environment };
  const parts = { settings: fleet.settings, environment, log: silentLogger };
  return {
    ...fleet,
    folder,
    odd: (more = {}) =>
      ({
        transport: 'stdio',
        command: [process.execPath, ODD_SERVER],
        folder,
        environment: {},
        network: false,
        ...more,
      }) as McpConnectionOptions,
    bring: async (server, connection, { accept = false, ...policy } = {}) => {
      const connections = new McpConnections(parts);
      try {
        return await importServer({ registry: fleet.pawl.registry, connections, server, connection, policy, accept });
      } finally {
        await connections.close();
      }
    },
  };
}
