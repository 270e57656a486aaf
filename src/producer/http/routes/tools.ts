/** `/v1/tools`: the tools of the fleet, or those that one session may call. */
import { z } from 'zod';
import { PROVIDERS } from '../../../shared/model-tools/export-types.ts';
import { toolsFor } from '../../../shared/model-tools/tools-for.ts';
import { switchedTools } from '../../tools/switched-tools.ts';
import { type Route, route } from '../core/route.ts';
import { switchedToolView } from '../core/views.ts';
import { sessionFor } from './sessions.ts';

export const toolRoutes: readonly Route[] = [
  route('get /v1/tools', {
    operationId: 'listTools',
    permission: 'use',
    summary:
      'Tools that the fleet offers; with `session`, those that it may call; with `provider`, in the form of that provider’s API.',
    query: z.strictObject({
      session: z.string().min(1).max(256).optional(),
      provider: z.enum(PROVIDERS).optional(),
      strict: z.enum(['true', 'false']).optional().meta({ type: 'boolean', enum: undefined }),
    }),
    responses: { 200: ['Tools', 'ToolList'] },
    async answer({ pawl, query, caller }) {
      if (query.session !== undefined) await sessionFor(pawl, caller, query.session);
      if (query.provider !== undefined) {
        const session = query.session === undefined ? undefined : (await pawl.session(query.session)).record;
        const options = query.strict === undefined ? {} : { strict: query.strict === 'true' };
        return toolsFor(query.provider, await pawl.publishedFor(session ?? { kind: 'main' }), options);
      }
      const tools = await switchedTools(pawl, query.session);
      return { tools: tools.map(switchedToolView) };
    },
  }),
];
