/** The HTTP server, with the suite's resources and prompts beside the fleet's tools. Prints its address. */
import { ProtocolError, type Server } from '@modelcontextprotocol/server';
import { connect } from '../../src/index.ts';
import { createLogger, loadSettings } from '../../src/main.ts';
import { startHttpServer } from '../../src/producer/http/server.ts';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';

const resources = [
  { uri: 'test://static-text', name: 'static-text', mimeType: 'text/plain' },
  { uri: 'test://static-binary', name: 'static-binary', mimeType: 'image/png' },
  { uri: 'test://watched-resource', name: 'watched-resource', mimeType: 'text/plain' },
];
const prompts = [
  { name: 'test_simple_prompt', description: 'A prompt without arguments.' },
  {
    name: 'test_prompt_with_arguments',
    description: 'A prompt with arguments.',
    arguments: [
      { name: 'arg1', required: true },
      { name: 'arg2', required: true },
    ],
  },
  {
    name: 'test_prompt_with_embedded_resource',
    description: 'A prompt with a resource.',
    arguments: [{ name: 'resourceUri', required: true }],
  },
  { name: 'test_prompt_with_image', description: 'A prompt with an image.' },
  { name: 'test_input_required_result_prompt', description: 'A prompt that asks.' },
];

function extend(server: Server): void {
  server.registerCapabilities({
    resources: { subscribe: true, listChanged: true },
    prompts: { listChanged: true },
    completions: {},
  });
  server.setRequestHandler('resources/list', () => ({ resources }));
  server.setRequestHandler('resources/templates/list', () => ({
    resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' }],
  }));
  server.setRequestHandler('resources/read', ({ params: { uri } }) => {
    const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
    if (id !== undefined) {
      const text = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
      return { contents: [{ uri, mimeType: 'application/json', text }] };
    }
    if (uri === 'test://static-binary') return { contents: [{ uri, mimeType: 'image/png', blob: PIXEL }] };
    if (resources.some((each) => each.uri === uri))
      return { contents: [{ uri, mimeType: 'text/plain', text: 'This is the content of the static text resource.' }] };
    throw new ProtocolError(-32_602, `Resource not found: ${uri}`, { uri });
  });
  server.setRequestHandler('resources/subscribe', () => ({}));
  server.setRequestHandler('resources/unsubscribe', () => ({}));
  server.setRequestHandler('prompts/list', () => ({ prompts }));
  server.setRequestHandler('prompts/get', ({ params }, ctx): never => {
    const message = (content: object) => ({ role: 'user', content });
    const answer = (...contents: object[]) => ({ messages: contents.map(message) }) as never;
    const given = params.arguments ?? {};
    switch (params.name) {
      case 'test_simple_prompt':
        return answer({ type: 'text', text: 'This is a simple prompt for testing.' });
      case 'test_prompt_with_arguments':
        return answer({
          type: 'text',
          text: `Prompt with arguments: arg1='${given['arg1']}', arg2='${given['arg2']}'`,
        });
      case 'test_prompt_with_embedded_resource': {
        const resource = {
          uri: given['resourceUri'],
          mimeType: 'text/plain',
          text: 'Embedded resource content for testing.',
        };
        return answer(
          { type: 'resource', resource },
          { type: 'text', text: 'Please process the embedded resource above.' },
        );
      }
      case 'test_prompt_with_image':
        return answer(
          { type: 'image', data: PIXEL, mimeType: 'image/png' },
          { type: 'text', text: 'Please analyze the image above.' },
        );
      case 'test_input_required_result_prompt': {
        const given = ctx.mcpReq.inputResponses?.['user_context'] as
          | { readonly content?: { readonly context?: string } }
          | undefined;
        if (given?.content?.context !== undefined)
          return answer({ type: 'text', text: `Use the following context: ${given.content.context}` });
        const requestedSchema = { type: 'object', properties: { context: { type: 'string' } }, required: ['context'] };
        const elicit = {
          method: 'elicitation/create',
          params: { mode: 'form', message: 'What context?', requestedSchema },
        };
        return { resultType: 'input_required', inputRequests: { user_context: elicit } } as never;
      }
      default:
        throw new ProtocolError(-32_602, `Unknown prompt: ${params.name}`);
    }
  });
  server.setRequestHandler('completion/complete', () => ({ completion: { values: [], total: 0, hasMore: false } }));
}

const settings = await loadSettings();
const pawl = await connect();
const server = await startHttpServer({ pawl, settings, log: createLogger(settings), port: 0, extendMcp: extend });
console.log(server.url);
process.on(
  'SIGTERM',
  () =>
    void server
      .close()
      .then(() => pawl.close())
      .then(() => process.exit(0)),
);
