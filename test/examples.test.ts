import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import type { ProgramOrder, ProgramOutput } from './fixtures/example-host.ts';
import { inBuiltPackage } from './helpers/built-package.ts';
import { temporaryFolder } from './helpers/context.ts';
import { startScript, type TestProcess } from './helpers/process.ts';
import { atOnce } from './helpers/signal.ts';
import { createWorld } from './helpers/world.ts';

const FOLDER = new URL('../examples/', import.meta.url);
const README = new URL('../README.md', import.meta.url);

/** What each example must print, in this order; other lines may stand between. */
const PRINTED: Readonly<Record<string, readonly string[]>> = {
  'quick-start.ts': ['success true'],
  'idempotency.ts': [
    '100 calls, 1 transfer, 1 answer',
    'later: from the record true, matched on completed',
    'other parameters: IDEMPOTENCY_CONFLICT, still 1 transfer',
    'another session: from the record false, now 2 transfers',
  ],
  'retries.ts': [
    'attempt 1 failed: HTTP_503',
    'attempt 2 failed: HTTP_503',
    'look_up: success after 3 attempts',
    'look_up with 2 attempts at most: retry_exhausted',
    'pay: retriable_error after 1 attempt;',
    'pay, the caller vouches for a second run: success after 2 attempts',
  ],
  'circuit.ts': [
    'after 3 failures: OPEN, 3 requests',
    'stock is refused: its circuit is open',
    'then: circuit_open, still 3 requests',
    'after the cooldown one probe: success, HALF_OPEN',
    'and a second one: success, CLOSED',
  ],
  'plans.ts': [
    'done: Oslo, Paris',
    'undone because of failing: booked in the end: nothing',
    'PLAN_INVALID nodes.wrong.params.city',
  ],
  'segments.ts': [
    'the calls are in a file',
    'a: success, run 1 of a, from the record true',
    'b, its file is away: RESULT_LOST, 3 runs',
    'b, its file is back: success, run 2 of b, 3 runs',
  ],
  'batches.ts': ['success 5', 'error calls.1.params.city', 'success 4', '2 calls accepted', 'the batch is done'],
  'cancellation.ts': [
    'in the queue: cancelled-before-start',
    'while it ran: cancelled, its caller gets CANCELLED',
    'once more: too-late',
    'by a signal: CANCELLED',
    'by a time limit: timeout',
  ],
  'unknown-outcome.ts': [
    'the worker died: OUTCOME_UNKNOWN',
    'asked again: OUTCOME_UNKNOWN, nothing runs',
    'the outbox holds: letter to Bob',
    'resolved as succeeded: success, 1 letter',
  ],
  'dead-letters.ts': [
    'failed: 3, {"HTTP_503":3}',
    'a dry run: 3 match, 0 would be skipped, 0 paid',
    'redriven: 3',
    'a: success',
    'b: success',
    'c: success',
    'paid: invoice-a, invoice-b, invoice-c',
    'left: 0',
  ],
  'sessions.ts': [
    'the branch writes: success',
    'the worker session reads what it wrote: success',
    'the worker session writes: PERMISSION_DENIED',
    'outside of the workspace: PERMISSION_DENIED',
    'after the main session was closed: SESSION_CLOSED',
  ],
  'sub-agents.ts': [
    'spawned: queued',
    'the sub-agent reads: 3 lines',
    'waited: completed, "notes.txt has 3 lines"',
    'the sub-agent writes: PERMISSION_DENIED',
    'told more: failed, "I may not write"',
    'closed: closed',
    'after that: NOT_FOUND',
  ],
  'testing-a-tool.ts': [
    'one call: success after 3 attempts, 9 bytes',
    'an empty title: INVALID_PARAMS at title',
    'from a worker session: PERMISSION_DENIED',
    'the function alone: reported tea, wrote "Buy tea."',
    'with a fake clock: 700 ms, replayed true, a day later false',
  ],
  'tool-forms.ts': [
    'one line: 5',
    'its schema: {"a":{"type":"number"},"b":{"default":2,"type":"number"}}',
    'free text: 2 lines',
    'plain JSON Schema: INVALID_PARAMS at id',
    'preview: Create note.md (4 bytes)',
    '+tea',
    'shown: abcdefgh… [cut: 8 of 26 bytes are shown',
  ],
  'hooks.ts': [
    'seen by the tool: ada@example.org from mail',
    'shown to the caller: 1 letter sent',
    'denied: The hook office-hours denied the call: the moon has no mail.',
    'recorder: beforeCall, onShortCircuit refused, afterCall',
    'the model was asked 1 time: success',
  ],
  'exports.ts': [
    'openai: book strict true, lossless',
    'anthropic: book strict false, lossless',
    'gemini: book strict false, lossy, without minLength',
    'mcp: book strict false, lossless',
    'the model sent null, the tool gets {"city":"Rome"}',
    'ada sees book, cancel; everybody sees book',
  ],
  'ai-sdk.ts': [
    'meanwhile: {"type":"progress"',
    'result: {"type":"result","text":"{\\"city\\":\\"Paris\\",\\"celsius\\":21}","isError":false}',
    'It is 21 degrees in Paris.',
  ],
  'openai.ts': ['1: INVALID_PARAMS', '2: {"city":"Paris","celsius":21}', 'It is 21 degrees in Paris.'],
  'openai-agents.ts': ['1: INVALID_PARAMS', '2: {"city":"Paris","celsius":21}', 'It is 21 degrees in Paris.'],
  'anthropic.ts': [
    'progress',
    'a: {"city":"Paris","celsius":21}',
    'b: an error, INVALID_PARAMS',
    'It is 21 degrees in Paris.',
  ],
  'langchain.ts': [
    'progress',
    'x: success, {"city":"Paris","celsius":21}',
    'y: error, INVALID_PARAMS',
    'It is 21 degrees in Paris.',
  ],
  'pending-calls.ts': [
    'pending: 1 call, and no worker runs it',
    'an output that does not fit: COMPLETION_INVALID at output.receipt',
    'completed: success, {"receipt":"R-1"}',
    'completed again: COMPLETION_USED',
  ],
  'dynamic-tools.ts': [
    'open_file: success, notes.md is open',
    'with other parameters: INVALID_PARAMS',
    'without the editor: CLIENT_GONE',
  ],
  'registry.ts': [
    'before: UNKNOWN_TOOL',
    'declared: {"city":"Paris","celsius":21}',
    'changed: {"celsius":21,"wind":3}',
    'rolled back: {"city":"Paris","celsius":21}',
    'switched off: PERMISSION_DENIED',
    'revisions: 4 3 2 1',
    'the secret is in the registry: false',
  ],
  'mcp-servers.ts': [
    'mcp.files.read_text_file read-only none',
    'mcp.files.write_file system once',
    'read: {"content":"buy tea"}, tainted true',
    'without content: INVALID_PARAMS',
  ],
  'consensus.ts': ['dollars: 1.08, whatever one node says', 'yen: NO_CONSENSUS after 3 workers'],
  'compensation.ts': [
    'hotel: booked, flight: booked, car: HTTP_422',
    'undone: flight, hotel',
    'undone again: from the record true',
    'booked in the end: nothing',
    'what failed: CALL_NOT_COMPENSABLE',
  ],
  'skills.ts': [
    'for this task: research, "Quote the file and the line of everything that you claim"',
    'its tools: grep_files, read',
    'read: success',
    'shell: PERMISSION_DENIED',
  ],
  'bullmq-before.ts': [
    'the answer was lost: sent to Ada',
    'letters that went out: 2',
    'same key, other text: sent to Ada, still 2',
  ],
  'bullmq-after.ts': [
    'the answer was lost: CONNECTION_RESET, may have happened: true',
    'letters that went out: 1',
    'same key, other text: IDEMPOTENCY_CONFLICT, still 1',
    'the next letter: success',
  ],
  'bullmq-beside.ts': [
    'the old way: sent to Ada',
    'the new way, same key: sent to Ada, from the record true',
    'letters that went out: 1',
  ],
  'checkpoints.ts': [
    'attempt 1 starts at page 0',
    'killed after page 2',
    'attempt 2 starts at page 3',
    'success: 6 pages',
    'pages that were written: 0 1 2 3 4 5',
  ],
  'later.ts': ['delayed', 'Remember: tea', 'cancelled-before-start'],
  'schedules.ts': [
    'every second: true, now paused: enough',
    'by hand: success',
    'the clocks change: 2099-03-28T01:30:00.000Z, 2099-03-29T01:00:00.000Z, 2099-03-30T00:30:00.000Z',
    'a wrong one: CONTRACT_INVALID at cron',
  ],
  'callbacks.ts': [
    'submitted; nothing waits for it',
    'call.settled: success',
    'requests: 2, messages: 1',
    'about this call: true',
  ],
  'progress.ts': ['build_index is queued', '1 of 5', '4 of 5', 'success: 5 documents indexed'],
};

test('every example is tested', () => {
  const files = readdirSync(FOLDER).filter((name) => name.endsWith('.ts'));
  expect(files.sort()).toEqual(Object.keys(PRINTED).sort());
});

test('the quick start is the program of the README', () => {
  const [, program] = /```ts\n(?<program>[\s\S]*?)```/.exec(readFileSync(README, 'utf8')) ?? [];
  const [, ...lines] = readFileSync(new URL('quick-start.ts', FOLDER), 'utf8').split('\n');
  expect(lines.join('\n')).toBe(program);
});

/** So many processes, each of which runs programs one after the other: they mostly wait. */
const LANES = 3;
const HOST = new URL('./fixtures/example-host.ts', import.meta.url);

test(`${Object.keys(PRINTED).join(', ')} do what they say, and leave no connection and nothing that runs`, async () => {
  const queue = Object.keys(PRINTED).values();
  const lane = async () => {
    const host = startScript(HOST);
    for (const name of queue) await expectExample(host, name);
  };
  const lanes = Array.from({ length: LANES }, (_, number) => [`lane ${number}`, lane] as const);
  await atOnce(Object.fromEntries(lanes), (run) => run());
});

async function expectExample(host: TestProcess, name: string): Promise<void> {
  const world = await createWorld();
  const order: ProgramOrder = {
    file: inBuiltPackage(fileURLToPath(new URL(name, FOLDER))),
    folder: temporaryFolder(),
    environment: {
      REDIS_URL: world.redisUrl,
      PAWL_PREFIX: world.prefix,
      PAWL_SIGNING_KEYS: 'test:an-example-signs-its-calls',
    },
  };
  host.say(JSON.stringify(order));
  const { stdout, stderr, left } = JSON.parse(
    await host.line(`{"file":${JSON.stringify(order.file)},`),
  ) as ProgramOutput;
  let from = 0;
  for (const line of PRINTED[name] ?? []) {
    const at = stdout.indexOf(line, from);
    expect(at, `"${line}" in its place in ${name}:\n${stdout}${stderr}`).toBeGreaterThanOrEqual(0);
    from = at + line.length;
  }
  expect({ stderr, left }, name).toEqual({ stderr: '', left: [] });
  expect(await world.connections(), name).toEqual([]);
}

test('the quick start needs nothing: it brings its own Redis, and ends it', async () => {
  const example = startScript(new URL('quick-start.ts', FOLDER), [], {
    cwd: temporaryFolder(),
    env: { REDIS_URL: undefined, PAWL_PREFIX: undefined },
  });
  expect((await example.ended).code, example.stderr()).toBe(0);
  expect(example.stdout()).toBe('success true\n');
});
