import { expect, test } from 'vitest';
import { loadOptional, missingPackages } from '../../../src/shared/errors/optional-packages.ts';

test('a feature whose packages are missing names them, with the command that installs them', async () => {
  const missing = new Error("Cannot find package '@modelcontextprotocol/client' imported from /x.js\nand more");
  await expect(loadOptional('mcpServers', () => Promise.reject(missing))).rejects.toMatchObject({
    code: 'CONFIGURATION',
    message:
      'Calling tools of MCP servers needs @modelcontextprotocol/client, which cannot be loaded: ' +
      "npm install @modelcontextprotocol/client. (Cannot find package '@modelcontextprotocol/client' imported from /x.js)",
    cause: missing,
  });
  const { message } = missingPackages('terminals', missing, 'use tty: false');
  expect(message).toContain('npm install @lydell/node-pty; or use tty: false. (Cannot find');
});
