import { expect, test } from 'vitest';
import { loadOptional, missingPackages } from '../../../src/shared/errors/optional-packages.ts';

test('a feature whose packages are missing names them, with the command that installs them', async () => {
  const missing = new Error("Cannot find package '@modelcontextprotocol/client' imported from /x.js\nand more");
  await expect(loadOptional('mcpServers', () => Promise.reject(missing))).rejects.toMatchObject({
    code: 'CONFIGURATION',
    message:
      'Calling tools of MCP servers needs @modelcontextprotocol/client, which cannot be loaded: ' +
      "npm install @modelcontextprotocol/client, and restart Pawl. (Cannot find package '@modelcontextprotocol/client')",
    cause: missing,
  });
  const { message } = missingPackages('terminals', missing, 'use tty: false');
  expect(message).toContain('npm install @lydell/node-pty, and restart Pawl; or use tty: false. (Cannot find');
});

test.each([
  ["Cannot find package 'a' imported from /srv/ada b/dist/x.js", "Cannot find package 'a'"],
  ["Cannot find module '@a/b/c.js'", "Cannot find module '@a/b/c.js'"],
  ["Cannot find module '/srv/ada/node_modules/a/b.node'", "Cannot find module 'b.node'"],
  ['/srv/ada/a.node: cannot open shared object file', 'a.node: cannot open shared object file'],
  ['file:///srv/ada/a.js does not provide an export', 'a.js does not provide an export'],
])('the reason why packages are missing names no folder: %s', (reason, shown) => {
  expect(missingPackages('board', new Error(reason)).message).toMatch(`(${shown})`);
});
