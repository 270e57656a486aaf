/** Writes the contract's JSON Schemas to `schemas/`, as the code has them: `node scripts/write-schemas.ts`. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { contractSchemas } from '../src/shared/calls/envelope.ts';

const folder = new URL('../schemas/', import.meta.url);
mkdirSync(folder, { recursive: true });
const { toolCallEnvelope, toolResultEnvelope } = contractSchemas();
for (const [name, schema] of [
  ['tool-call-envelope-1.1.json', toolCallEnvelope],
  ['tool-result-envelope-1.1.json', toolResultEnvelope],
] as const) {
  writeFileSync(new URL(name, folder), `${JSON.stringify(schema, null, 2)}\n`);
  console.log(`schemas/${name}`);
}
