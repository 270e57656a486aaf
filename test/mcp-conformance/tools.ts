/**
 * The tools that the MCP conformance suite looks for, as ordinary tools: every scenario that calls one crosses the queue and runs on
 * a worker. Names and texts are the suite's.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { defineTool, defineUntypedTool, type ToolContext } from '../../src/index.ts';
import {
  acceptedForm,
  type CallerAnswers,
  type ClientRequest,
  callerAnswers,
  elicit,
} from '../../src/shared/calls/elicitation.ts';
import type { AnyTool } from '../../src/shared/tools/tool.ts';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const SOUND = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';
/**
 * The suite asks for tools that take their time, so some of these sleep; nothing waits for that. Reports of progress that come
 * faster than this are merged.
 */
const BETWEEN_REPORTS_MS = 130;

type Answer = { readonly output: unknown; readonly display?: string };

function tool<Schema extends z.ZodType>(
  name: string,
  description: string,
  input: Schema,
  run: (params: z.output<Schema>, ctx: ToolContext) => Promise<Answer> | Answer,
  change: { readonly taskSupport?: 'forbidden' | 'required' } = {},
): AnyTool {
  return defineTool({ name, version: '1.0.0', description, tier: 'read-only', input, annotations: change, run });
}

const text = (words: string): Answer => ({ output: { content: [{ type: 'text', text: words }] } });
const nothing = z.object({});

const form = (message: string, properties: object, required = Object.keys(properties)): ClientRequest => ({
  method: 'elicitation/create',
  params: { mode: 'form', message, requestedSchema: { type: 'object', properties, required } },
});
const completion = (words: string): ClientRequest => ({
  method: 'sampling/createMessage',
  params: { messages: [{ role: 'user', content: { type: 'text', text: words } }], maxTokens: 100 },
});
const roots: ClientRequest = { method: 'roots/list' };

/** A tool that asks until it has what it needs. */
const asking = (
  name: string,
  run: (answers: CallerAnswers | undefined, params: Readonly<Record<string, unknown>>) => Promise<Answer> | Answer,
  input: z.ZodRawShape = {},
): AnyTool =>
  tool(name, `Asks its caller (${name}).`, z.object({ ...input, answers: callerAnswers }), (params) => {
    const { answers, ...rest } = params as { answers?: CallerAnswers };
    return run(answers, rest);
  });

const response = (answers: CallerAnswers | undefined, name: string) =>
  answers?.responses[name] as
    | {
        readonly action?: string;
        readonly content?: { readonly text?: string };
        readonly roots?: readonly { readonly uri: string }[];
      }
    | undefined;
const nameForm = (message = 'What is your name?') => form(message, { name: { type: 'string' } });

const content: readonly AnyTool[] = [
  tool('test_simple_text', 'Text.', nothing, () => text('This is a simple text response for testing.')),
  tool('test_image_content', 'An image.', nothing, () => ({
    output: { content: [{ type: 'image', data: PIXEL, mimeType: 'image/png' }] },
  })),
  tool('test_audio_content', 'A sound.', nothing, () => ({
    output: { content: [{ type: 'audio', data: SOUND, mimeType: 'audio/wav' }] },
  })),
  tool('test_embedded_resource', 'A resource.', nothing, () => ({
    output: {
      content: [
        {
          type: 'resource',
          resource: {
            uri: 'test://embedded-resource',
            mimeType: 'text/plain',
            text: 'This is an embedded resource content.',
          },
        },
      ],
    },
  })),
  tool('test_multiple_content_types', 'All kinds of content.', nothing, () => ({
    output: {
      content: [
        { type: 'text', text: 'Multiple content types test:' },
        { type: 'image', data: PIXEL, mimeType: 'image/png' },
        {
          type: 'resource',
          resource: {
            uri: 'test://mixed-content-resource',
            mimeType: 'application/json',
            text: '{"test":"data","value":123}',
          },
        },
      ],
    },
  })),
  tool('test_error_handling', 'Fails.', nothing, () => {
    throw new Error('This tool intentionally returns an error for testing');
  }),
  tool('test_tool_with_logging', 'Logs.', nothing, async (_params, ctx) => {
    for (const [index, message] of [
      'Tool execution started',
      'Tool processing data',
      'Tool execution completed',
    ].entries()) {
      ctx.progress({ progress: index, message });
      await sleep(BETWEEN_REPORTS_MS);
    }
    return text('Tool with logging executed successfully');
  }),
  tool('test_tool_with_progress', 'Reports its progress.', nothing, async (_params, ctx) => {
    for (const progress of [0, 50, 100]) {
      ctx.progress({ progress, total: 100, message: `Completed step ${progress} of 100` });
      await sleep(BETWEEN_REPORTS_MS);
    }
    return text('done');
  }),
  tool('test_logging_tool', 'Logs once.', nothing, (_params, ctx) => {
    ctx.progress({ progress: 1, message: 'test_logging_tool ran' });
    return text('logged');
  }),
  tool('test_streaming_elicitation', 'Streams nothing but its result.', nothing, () => text('streamed')),
];

const interaction: readonly AnyTool[] = [
  asking(
    'test_sampling',
    (answers, { prompt }) => {
      const answer = response(answers, 'llm');
      if (answer === undefined) return elicit({ llm: completion(String(prompt)) });
      return text(`LLM response: ${answer.content?.text ?? 'No response'}`);
    },
    { prompt: z.string() },
  ),
  asking(
    'test_elicitation',
    (answers, { message }) => {
      const answer = response(answers, 'user');
      if (answer === undefined)
        return elicit({
          user: form(String(message), { response: { type: 'string', description: "User's response" } }),
        });
      return text(`User response: action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`);
    },
    { message: z.string() },
  ),
  asking('test_elicitation_sep1034_defaults', (answers) => {
    const answer = response(answers, 'user');
    if (answer !== undefined)
      return text(`Elicitation completed: action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`);
    const properties = {
      name: { type: 'string', description: 'User name', default: 'John Doe' },
      age: { type: 'integer', description: 'User age', default: 30 },
      score: { type: 'number', description: 'User score', default: 95.5 },
      status: {
        type: 'string',
        description: 'User status',
        enum: ['active', 'inactive', 'pending'],
        default: 'active',
      },
      verified: { type: 'boolean', description: 'Verification status', default: true },
    };
    return elicit({ user: form('Please review and update the form fields with defaults', properties, []) });
  }),
  asking('test_elicitation_sep1330_enums', (answers) => {
    const answer = response(answers, 'user');
    if (answer !== undefined)
      return text(`Elicitation completed: action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`);
    const values = ['First', 'Second', 'Third'];
    const options = ['option1', 'option2', 'option3'];
    const titled = (ending: string) =>
      values.map((title, index) => ({ const: `value${index + 1}`, title: `${title} ${ending}` }));
    const properties = {
      untitledSingle: { type: 'string', enum: options },
      titledSingle: { type: 'string', oneOf: titled('Option') },
      legacyEnum: {
        type: 'string',
        enum: ['opt1', 'opt2', 'opt3'],
        enumNames: ['Option One', 'Option Two', 'Option Three'],
      },
      untitledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { type: 'string', enum: options } },
      titledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { anyOf: titled('Choice') } },
    };
    return elicit({ user: form('Please select options from the enum fields', properties, []) });
  }),
  asking('test_missing_capability', (answers) =>
    response(answers, 'llm_answer') === undefined
      ? elicit({ llm_answer: completion('Reply with the single word: pong') })
      : text('sampling round-trip complete'),
  ),
  asking('test_input_required_result_elicitation', (answers) => {
    const name = acceptedForm(answers, 'user_name')?.['name'];
    return typeof name === 'string' ? text(`Hello, ${name}!`) : elicit({ user_name: nameForm() });
  }),
  asking('test_input_required_result_sampling', (answers) => {
    const answer = response(answers, 'capital_question');
    if (answer === undefined) return elicit({ capital_question: completion('What is the capital of France?') });
    return text(`Sampling response: ${answer.content?.text ?? JSON.stringify(answer)}`);
  }),
  asking('test_input_required_result_list_roots', (answers) => {
    const listed = response(answers, 'client_roots')?.roots;
    if (!Array.isArray(listed)) return elicit({ client_roots: roots });
    return text(`Client exposed ${listed.length} root(s): ${listed.map(({ uri }) => uri).join(', ')}`);
  }),
  asking('test_input_required_result_request_state', (answers) => {
    if (acceptedForm(answers, 'confirm') === undefined || answers?.state === undefined)
      return elicit({ confirm: form('Please confirm', { ok: { type: 'boolean' } }) }, { tool: 'request_state' });
    return text('state-ok: requestState verified and confirmation received');
  }),
  asking('test_input_required_result_tampered_state', (answers) => {
    if (acceptedForm(answers, 'confirm') === undefined || answers?.state === undefined)
      return elicit({ confirm: form('Please confirm', { ok: { type: 'boolean' } }) }, { tool: 'tampered_state' });
    return text('integrity-ok: requestState verified');
  }),
  asking('test_input_required_result_multiple_inputs', (answers) => {
    const name = acceptedForm(answers, 'user_name')?.['name'];
    const greeting = response(answers, 'greeting')?.content?.text;
    const listed = response(answers, 'client_roots')?.roots;
    if (typeof name !== 'string' || typeof greeting !== 'string' || !Array.isArray(listed))
      return elicit(
        { user_name: nameForm(), greeting: completion('Generate a greeting'), client_roots: roots },
        { tool: 'multiple_inputs' },
      );
    return text(`${greeting} ${name}: ${listed.length} root(s) visible`);
  }),
  asking('test_input_required_result_multi_round', (answers) => {
    const state = answers?.state as { readonly round?: number; readonly name?: unknown } | undefined;
    if (state?.round === undefined) return elicit({ step1: nameForm('Step 1: What is your name?') }, { round: 1 });
    if (state.round === 1) {
      const name = acceptedForm(answers, 'step1')?.['name'] ?? 'unknown';
      const color = form('Step 2: What is your favorite color?', { color: { type: 'string' } });
      return elicit({ step2: color }, { round: 2, name });
    }
    const color = acceptedForm(answers, 'step2')?.['color'] ?? 'unknown';
    return text(`Multi-round complete: ${String(state.name)} likes ${String(color)}`);
  }),
  asking('test_input_required_result_capabilities', (answers) => {
    if (answers !== undefined && Object.keys(answers.responses).length > 0) return text('answered');
    const requests = {
      ...(answers?.canAsk.includes('elicitation') ? { user_name: nameForm() } : {}),
      ...(answers?.canAsk.includes('sampling') ? { greeting: completion('Generate a short greeting') } : {}),
      ...(answers?.canAsk.includes('roots') ? { client_roots: roots } : {}),
    };
    return Object.keys(requests).length === 0 ? text('Nothing can be asked.') : elicit(requests);
  }),
];

async function computing(seconds: number, signal: AbortSignal): Promise<void> {
  await sleep(seconds * 1_000, undefined, { signal });
}

const tasks: readonly AnyTool[] = [
  tool('greet', 'Greets.', z.object({ name: z.string() }), ({ name }) => text(`Hello, ${name}!`), {
    taskSupport: 'forbidden',
  }),
  defineTool({
    name: 'slow_compute',
    version: '1.0.0',
    description: 'Takes its time.',
    tier: 'read-only',
    timeoutMs: 120_000,
    input: z.object({ seconds: z.number().min(0).max(100), label: z.string().optional() }),
    async run({ seconds, label }, ctx) {
      await computing(seconds, ctx.signal);
      return text(`Computed ${label ?? ''} for ${seconds} s`);
    },
  }),
  tool(
    'failing_job',
    'Fails after a while.',
    nothing,
    async (_params, ctx) => {
      await computing(1, ctx.signal);
      throw new Error('the job failed');
    },
    { taskSupport: 'required' },
  ),
  tool(
    'protocol_error_job',
    'Returns what is no result.',
    nothing,
    async (_params, ctx) => {
      await computing(0.2, ctx.signal);
      return { output: 1n };
    },
    { taskSupport: 'required' },
  ),
  asking(
    'confirm_delete',
    async (answers, { filename }) => {
      if (answers === undefined || Object.keys(answers.responses).length === 0) {
        // Long enough to have become a task.
        await sleep(700);
        return elicit({ confirm: form(`Delete ${String(filename)}?`, { confirm: { type: 'boolean' } }) });
      }
      return text(acceptedForm(answers, 'confirm')?.['confirm'] === true ? 'deleted' : 'kept');
    },
    { filename: z.string() },
  ),
  asking('multi_input', async (answers) => {
    if (answers === undefined || Object.keys(answers.responses).length === 0) {
      await sleep(700);
      return elicit({ first: nameForm('The first name?'), second: nameForm('The second name?') });
    }
    return text(
      `${String(acceptedForm(answers, 'first')?.['name'])} and ${String(acceptedForm(answers, 'second')?.['name'])}`,
    );
  }),
  asking('test_tool_with_task', async (answers) => {
    const name = acceptedForm(answers, 'user_name')?.['name'];
    if (typeof name !== 'string') return elicit({ user_name: nameForm() });
    await sleep(1_000);
    return text(`A task for ${name}`);
  }),
];

/** `region` is mirrored into a header that servers check (SEP-2243). */
const headers = tool(
  'test_x_mcp_header',
  'Takes a parameter that also stands in a header.',
  z.object({
    region: z.string().optional().meta({ 'x-mcp-header': 'Region' }),
    level: z.number().int().optional(),
  }),
  ({ region }) => text(`region=${region ?? '<none>'}`),
);

/** What of JSON Schema 2020-12 must reach clients as it is (SEP-1613, SEP-2106). */
const schema2020 = defineUntypedTool({
  name: 'json_schema_2020_12_tool',
  version: '1.0.0',
  description: 'Tool with JSON Schema 2020-12 features',
  tier: 'read-only',
  inputSchema: {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: {
      address: {
        $anchor: 'addressDef',
        type: 'object',
        properties: { street: { type: 'string' }, city: { type: 'string' } },
      },
    },
    properties: {
      name: { type: 'string' },
      address: { $ref: '#/$defs/address' },
      contactMethod: { type: 'string', enum: ['phone', 'email'] },
      phone: { type: 'string' },
      email: { type: 'string' },
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
    then: { required: ['phone'] },
    else: { required: ['email'] },
    additionalProperties: false,
  },
  run: () => text('JSON Schema 2020-12'),
});

export const fixtureTools: readonly AnyTool[] = [...content, ...interaction, ...tasks, headers, schema2020];
