/**
 * Says which Node is needed, before anything else of the library runs: each entry imports this first. It imports nothing, and runs
 * on every Node that knows modules.
 */
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);

if (major < 22 || (major === 22 && minor < 22))
  throw Object.assign(
    new Error(`Pawl needs Node 22.22 or later; this is Node ${process.versions.node}. See https://nodejs.org.`),
    { code: 'CONFIGURATION' },
  );

export {};
