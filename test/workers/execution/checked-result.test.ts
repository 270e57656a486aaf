import { expect, test } from 'vitest';
import { z } from 'zod';
import type { Issue } from '../../../src/shared/errors/failure.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { checkedResult } from '../../../src/workers/execution/run-tool.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { scripted } from '../../helpers/tools.ts';

const tool = defineTool({
  name: 'report',
  version: '1.0.0',
  description: 'Reports.',
  tier: 'read-only',
  input: z.object({}),
  output: z.object({ text: z.string() }),
  run: () => ({ output: { text: 'a' } }),
});
const fault: Issue = { path: 'text', message: 'is wrong' };

test.each([
  { what: 'that fits, at once', answer: [] as readonly Issue[], kind: 'value' },
  { what: 'that does not fit, at once', answer: [fault] as readonly Issue[], kind: 'failure' },
  { what: 'that fits, in a thread', answer: Promise.resolve<readonly Issue[]>([]), kind: 'value' },
  { what: 'that does not fit, in a thread', answer: Promise.resolve<readonly Issue[]>([fault]), kind: 'failure' },
])('an output is checked once: one $what', async ({ answer, kind }) => {
  let checks = 0;
  const validateOutput = () => {
    checks += 1;
    return answer;
  };
  const result = checkedResult({ output: { text: 'a' } }, { tool, validateOutput });
  expect(result instanceof Promise).toBe(!(Array.isArray(answer) && answer.length === 0));
  expect((await result).kind).toBe(kind);
  expect(checks).toBe(1);
});

test('members that no result has are named in the log, once for each tool, and the call succeeds', async () => {
  const warned: string[] = [];
  const log = { ...silentLogger, warn: (_fields: object, message: string) => void warned.push(message) };
  const { tool: misspelt } = scripted('misspelt', () => ({ output: 1, sucess: false }) as { output: number });
  const { tool: plain } = scripted('plain', () => ({ output: 1, success: true }));
  const { session } = await startFleet({ tools: [misspelt, plain], log });
  for (const name of ['plain', 'misspelt', 'misspelt'])
    expect(await session.call(name, {})).toMatchObject({ status: 'success', output: { content: 1 } });
  expect(warned.filter((message) => message.startsWith('A result'))).toEqual([
    'A result has no member "sucess" (did you mean success?); misspelt returned one with it, which is left out.',
  ]);
});
