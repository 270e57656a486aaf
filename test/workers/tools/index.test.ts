import { expect, test } from 'vitest';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { checkDefinition } from '../../../src/shared/tools/define-tool.ts';
import { isTool } from '../../../src/shared/tools/tool.ts';
import { baseTools } from '../../../src/workers/tools/index.ts';

const ESCALATION = ['sandbox_permissions', 'justification'];

test('the base tools have their names, tiers and parameters (A16)', () => {
  const shape = baseTools.map((tool) => [tool.name, tool.tier, Object.keys(tool.inputSchema['properties'] ?? {})]);
  expect(shape).toEqual([
    ['read', 'read-only', ['path', 'offset', 'limit', 'line_numbers']],
    ['write', 'workspace', ['path', 'content', 'expected_hash']],
    ['edit', 'workspace', ['path', 'old_string', 'new_string', 'replace_all', 'edits', 'expected_hash']],
    ['apply_patch', 'workspace', ['patch']],
    ['list_dir', 'read-only', ['path', 'depth', 'offset', 'limit']],
    [
      'grep_files',
      'read-only',
      ['pattern', 'path', 'include', 'ignore_case', 'literal', 'context', 'output_mode', 'limit'],
    ],
    ['glob', 'read-only', ['pattern', 'path', 'include_ignored', 'limit']],
    ['view_image', 'read-only', ['path']],
    ['shell', 'system', ['command', 'workdir', 'cwd', 'timeout_ms', 'stdin', ...ESCALATION]],
    ['shell_command', 'system', ['command', 'workdir', 'timeout_ms', ...ESCALATION]],
    ['exec_command', 'system', ['cmd', 'workdir', 'shell', 'timeout', 'tty', 'yield_time_ms', ...ESCALATION]],
    ['write_stdin', 'system', ['session_id', 'chars', 'yield_time_ms']],
    ['message', 'system', ['text', 'format']],
    ['request_user_input', 'system', ['question', 'options', 'free_text', 'timeout_ms']],
    ['memory_search', 'read-only', ['query', 'limit', 'metadata']],
    ['memory_store', 'workspace', ['text', 'metadata', 'source', 'ttl_days', 'tainted']],
    ['get_memory', 'read-only', ['id']],
    ['memory_forget', 'workspace', ['id']],
    ['web_search', 'read-only', ['query', 'count', 'freshness', 'domains']],
    ['web_fetch', 'read-only', ['url', 'format', 'offset', 'max_length']],
    ['update_plan', 'read-only', ['explanation', 'plan']],
    ['spawn_agent', 'system', ['message', 'agent_type']],
    ['send_input', 'system', ['id', 'message', 'interrupt']],
    ['resume_agent', 'system', ['id']],
    ['wait', 'system', ['ids', 'timeout_ms']],
    ['close_agent', 'system', ['id']],
  ]);
  expect(baseTools.every(isTool)).toBe(true);
});

test('every parameter is described, and every output schema compiles', () => {
  for (const tool of baseTools) {
    const properties = tool.inputSchema['properties'] as Record<string, { description?: string }>;
    for (const [name, property] of Object.entries(properties)) {
      expect([tool.name, name, property.description ?? '']).toEqual([tool.name, name, expect.stringMatching(/.{20,}/)]);
    }
    expect(tool.outputSchema).toBeDefined();
    compileSchema(tool.outputSchema ?? {});
    expect(compileSchema(tool.inputSchema)({ unknown: 1 })).not.toEqual([]);
  }
});

test.each(baseTools.map((tool) => [tool.name, tool] as const))('the definition of %s holds', (_name, tool) => {
  checkDefinition(tool);
});
