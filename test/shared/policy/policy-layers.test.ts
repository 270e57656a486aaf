import { describe, expect, test } from 'vitest';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import { evaluate } from '../../../src/shared/policy/policy.ts';
import { POLICY_DECISIONS, type PolicyDecision } from '../../../src/shared/policy/policy-file.ts';
import { toolLimits } from '../../../src/shared/policy/policy-layers.ts';
import type { PolicyRequest } from '../../../src/shared/policy/policy-request.ts';
import { taintOf } from '../../../src/shared/policy/taint.ts';
import { SESSION_KINDS, type SessionKind } from '../../../src/shared/sessions/channel-kinds.ts';
import { newSession, type SessionRecord } from '../../../src/shared/sessions/session.ts';
import { TIERS } from '../../../src/shared/tools/tool.ts';
import { escapeInvisible, formatForDisplay } from '../../../src/shared/util/text/visible-text.ts';
import { matches } from '../../../src/shared/util/wildcard.ts';
import { glob } from '../../../src/workers/tools/glob.ts';
import { grepFiles } from '../../../src/workers/tools/grep-files.ts';
import { listDir } from '../../../src/workers/tools/list-dir.ts';

const policyOf = (policy: object) => resolveSettings({ options: { policy } }).policy;
const STRICTNESS: readonly PolicyDecision[] = POLICY_DECISIONS;

function resultOf(policy: object, change: Partial<PolicyRequest> = {}) {
  return evaluate({
    tool: { name: 'shell', tier: 'system', effects: 'once' },
    session: { kind: 'main', sessionKey: 'trip', agentId: 'helper', tenantId: 'acme' },
    channel: 'operator',
    policy: policyOf(policy),
    ...change,
  });
}

test('every cell of tier × session kind × layer × decision names its deciding rule, and no layer loosens another', () => {
  const LAYERS = { global: [], tenants: ['acme'], agents: ['helper'], channels: ['operator'], sessions: ['trip'] };
  let cells = 0;
  for (const tier of TIERS)
    for (const kind of SESSION_KINDS) {
      const request = {
        tool: { name: 'shell', tier, effects: 'once' as const },
        session: { kind, sessionKey: 'trip', agentId: 'helper', tenantId: 'acme' },
      };
      const without = resultOf({}, request);
      expect(without.rule).toMatch(/^built-in\./);
      for (const [group, [name]] of Object.entries(LAYERS))
        for (const decision of POLICY_DECISIONS) {
          const layer = { tools: { shell: decision } };
          const result = resultOf({ [group]: name === undefined ? layer : { [name]: layer } }, request);
          const path = name === undefined ? `policy.${group}` : `policy.${group}.${name}`;
          const stricter = STRICTNESS.indexOf(decision) > STRICTNESS.indexOf(without.decision);
          expect(result.rule).toBe(stricter ? `${path}.tools.shell` : without.rule);
          expect(result.decision).toBe(stricter ? decision : without.decision);
          expect(result.rulings).toContainEqual(expect.objectContaining({ decision, rule: `${path}.tools.shell` }));
          expect(result.reason).not.toBe('');
          cells += 1;
        }
    }
  expect(cells).toBe(4 * 3 * 5 * 3);
});

describe('layers (A3, I3)', () => {
  test('deny wins, wherever it stands', () => {
    const policy = { global: { tools: { '*': 'deny' } }, sessions: { trip: { tools: { shell: 'allow' } } } };
    expect(resultOf(policy)).toMatchObject({ decision: 'deny', rule: 'policy.global.tools.*' });
  });

  test('inside one layer, a tool’s rule stands for its tier’s, and a name for a pattern', () => {
    const tiers = { system: 'deny' };
    expect(resultOf({ global: { tiers } })).toMatchObject({ decision: 'deny', rule: 'policy.global.tiers.system' });
    expect(resultOf({ global: { tiers, tools: { shell: 'ask' } } }).rule).toBe('policy.global.tools.shell');
    expect(resultOf({ global: { tools: { 's*': 'deny', shell: 'ask' } } }).decision).toBe('ask');
  });

  test('what restricts a session restricts those below it, however deep, and whatever they are called', () => {
    const open = (kind: SessionKind, sessionKey: string, above?: SessionRecord) =>
      newSession({ kind, sessionKey }, above, { sessionKey, workspaceRoot: '/', createdAtMs: 0 });
    const branch = open('branch', 'free', open('main', 'trip'));
    const deepest = open('worker', 'agent-1', branch);
    expect(deepest.ancestors).toEqual(['trip', 'free']);
    for (const session of [branch, deepest])
      for (const name of ['trip', 'tr*']) {
        const policy = { sessions: { [name]: { tools: { read: { decision: 'deny', perSession: 3 } } } } };
        const request = { session, tool: { name: 'read', tier: 'read-only' as const } };
        expect(resultOf(policy, request)).toMatchObject({
          decision: 'deny',
          rule: `policy.sessions.${name}.tools.read`,
        });
        expect(toolLimits({ ...request, policy: policyOf(policy) })).toHaveLength(1);
      }
    const others = { sessions: { free: { tools: { '*': 'deny' } } } };
    expect(resultOf(others, { session: open('branch', 'next', open('main', 'trip')) }).decision).toBe('allow');
  });

  test('layers that concern others say nothing', () => {
    const deny = { tools: { shell: 'deny' } };
    expect(resultOf({ tenants: { other: deny }, agents: { other: deny }, channels: { none: deny } }).decision).toBe(
      'allow',
    );
  });

  test('a tool can be kept for sessions of some kinds', () => {
    const policy = { global: { tools: { shell: { sessionKinds: ['main'] } } } };
    const branch = { session: { kind: 'branch' as const } };
    expect(resultOf(policy).decision).toBe('allow');
    expect(resultOf(policy, branch)).toMatchObject({
      decision: 'deny',
      rule: 'policy.global.tools.shell.sessionKinds',
    });
  });

  test('a wrong entry is named with its path', () => {
    expect(() => policyOf({ global: { tools: { shell: 'perhaps' } } })).toThrow(/policy\.global\.tools\.shell/);
  });
});

describe('commands by prefix (C23, C24)', () => {
  const commands = [
    { prefix: ['git'], decision: 'ask' },
    { prefix: ['git', 'status'], decision: 'allow' },
    { prefix: ['rm'], decision: 'deny', reason: 'nothing is removed' },
  ];
  const policy = { global: { tools: { shell: { decision: 'deny', commands } } } };
  const run = (...command: string[]) => resultOf(policy, { params: { command } });

  test.each([
    [['git', 'status', '-s'], 'allow'],
    [['git', 'push', 'origin'], 'ask'],
    [['rm', '-rf', '/'], 'deny'],
    [['/bin/rm', 'x'], 'deny'],
    [['ls'], 'deny'],
  ] as const)('%j: %s', (command, decision) => {
    expect(run(...command).decision).toBe(decision);
  });

  test.each([['rm'], ['/bin/rm'], ['/usr/local/bin/rm']])(
    'a rule on a path, too, is a rule on the program: %s',
    (program) => {
      const byPath = { decision: 'allow', commands: [{ prefix: ['/bin/rm', '-rf'], decision: 'deny' }] };
      const on = (...command: string[]) =>
        resultOf({ global: { tools: { shell: byPath } } }, { params: { command } }).decision;
      expect(on(program, '-rf', 'x')).toBe('deny');
      expect(on(program)).toBe('allow');
    },
  );

  test.each(['./git', 'bin/git', '/tmp/git', '/usr/bin/../../tmp/git', '../git'])(
    'what a name allows, a program of another folder is not: %s',
    (program) => {
      expect(run(program, 'status').decision).toBe('ask');
      const rules = [{ prefix: ['git', 'status'], decision: 'allow' }];
      const asking = { global: { tools: { shell: { decision: 'ask', commands: rules } } } };
      expect(resultOf(asking, { params: { command: [program, 'status'] } }).decision).toBe('ask');
      const named = { decision: 'ask', commands: [{ prefix: [program, 'status'], decision: 'allow' }] };
      const allowed = { global: { tools: { shell: named } } };
      expect(resultOf(allowed, { params: { command: [program, 'status'] } }).decision).toBe('allow');
      expect(resultOf(allowed, { params: { command: ['git', 'status'] } }).decision).toBe('ask');
    },
  );

  test.each(['./rm', '/tmp/rm', 'sub/rm'])('what a name forbids, a program of another folder is: %s', (program) => {
    expect(run(program, 'x').decision).toBe('deny');
    expect(run(program, 'x').rule).toBe('policy.global.tools.shell.commands.2');
  });

  test('what is remembered of a program in a folder names the folder', () => {
    const asking = { global: { tools: { shell: 'ask' } } };
    const remembered = (program: string) =>
      resultOf(asking, { params: { command: [program, 'prod'] } }).amendment?.prefix[0];
    expect(['./deploy', '/usr/bin/deploy', 'deploy'].map(remembered)).toEqual(['./deploy', 'deploy', 'deploy']);
  });

  test.each([
    ...[
      'sh -c id',
      'bash -lc id',
      'zsh',
      '/bin/dash -c id',
      'sh -x deploy.sh',
      './venv/bin/python3.12 -c pass',
      'python -m pip',
    ],
    ...['node -e 1', 'perl5.36 -e 1', 'ruby -e 1', 'php8.3 -r 1', 'awk -F: x', 'git -c alias.x=!id x', 'npx -c id'],
    ...['env A=1 id', 'sudo apt install x', 'xargs rm', 'timeout 5 id', 'nohup id', 'ssh host id', 'find . -delete'],
    ...['docker run x', 'kubectl exec pod', 'npm exec x', 'uv run x', 'BusyBox sh', 'cmd.exe /c dir'],
  ])('of a command whose first words leave open what runs, no prefix is proposed: %s', (line) => {
    const asked = resultOf({ global: { tools: { shell: 'ask' } } }, { params: { command: line.split(' ') } });
    expect(asked).toMatchObject({ decision: 'ask' });
    expect(asked.amendment).toBeUndefined();
  });

  test.each([
    'git push',
    'node server.js',
    'bash deploy.sh',
    'npm test',
    'docker ps',
    'make test',
    'rm -r',
    'shellcheck x',
  ])('of a command whose first words say what runs, they are: %s', (line) => {
    const asked = resultOf({ global: { tools: { shell: 'ask' } } }, { params: { command: `${line} more`.split(' ') } });
    expect(asked.amendment?.prefix).toEqual(line.split(' '));
  });

  test('what asks proposes what could be remembered; what is forbidden says why', () => {
    expect(run('git', 'push', 'origin').amendment).toEqual({ kind: 'command-prefix', prefix: ['git', 'push'] });
    expect(run('rm', 'x')).toMatchObject({
      reason: 'nothing is removed',
      rule: 'policy.global.tools.shell.commands.2',
    });
  });
});

describe('commands beside commands, and texts for a shell (C23, C24)', () => {
  const policy = (decision: string, ...commands: object[]) => ({
    global: { tools: { shell: { decision, commands } } },
  });
  const without = policy('allow', { prefix: ['rm'], decision: 'deny' }, { prefix: ['git', 'push'], decision: 'ask' });
  const only = policy('ask', { prefix: ['git', 'status'], decision: 'allow' }, { prefix: ['ls'], decision: 'allow' });
  const on = (layers: object, params: Record<string, unknown>) => resultOf(layers, { params });

  test.each([
    { argv: ['rm', '-rf', 'x'], command: ['ls'] },
    { cmd: 'rm -rf x', command: ['ls'] },
    { cmd: ['ls'], argv: ['ls'], command: ['rm'] },
  ])('a rule that denies looks at every parameter that may be the command: %j', (params) => {
    expect(on(without, params)).toMatchObject({ decision: 'deny', rule: 'policy.global.tools.shell.commands.0' });
  });

  test.each([
    { command: ['git', 'status'], argv: ['rm', 'x'] },
    { command: ['git', 'status'], argv: ['git', 'status'] },
    { command: ['git', 'status'], cmd: 7 },
  ])('none is allowed, and none is proposed to be remembered, beside another one: %j', (params) => {
    const asked = on(only, params);
    expect(asked).toMatchObject({ decision: 'ask' });
    expect(asked.amendment).toBeUndefined();
  });

  test.each([
    ['ls -l src', 'allow'],
    ['rm -rf x', 'deny'],
    ['/bin/rm x', 'deny'],
    ['"rm" x', 'deny'],
    ["r'm' x", 'deny'],
    ['cd src && rm x', 'deny'],
    ['ls\nrm x', 'deny'],
    ['ls & rm x', 'deny'],
    ['A=1 rm x', 'deny'],
    ['>log 2>&1 rm x', 'deny'],
    ['if true; then rm x; fi', 'deny'],
    ["eval 'rm x'", 'deny'],
    ['r\\m x', 'deny'],
    ['/bin/r? x', 'deny'],
    ['$PROGRAM x', 'deny'],
    ['echo $(rm x)', 'deny'],
    ['echo "`rm x`"', 'deny'],
    ["echo $'\\''; rm x; echo ' '", 'deny'],
    [`echo "\${x:-$(rm x)}"`, 'deny'],
    ["# it's\nrm x\n# it's", 'deny'],
    ['cat <<END\nEND', 'deny'],
    ["echo 'never closed", 'deny'],
    ['echo rm; echo "rm; rm" # rm', 'allow'],
    ['grep -n "a (b)" *.ts 2>/dev/null | sort', 'allow'],
    ["git log -1 --format='%h $x'", 'allow'],
    ['git push origin', 'ask'],
    ['git $WHAT', 'ask'],
    ['git [p]ush', 'ask'],
    ['git status | cat', 'allow'],
  ])('the text %j, where rm is denied and git push asks: %s', (text, decision) => {
    expect(on(without, { command: text }).decision).toBe(decision);
    expect(on(without, { cmd: text, shell: '/bin/bash' }).decision).toBe(decision);
  });

  test.each([
    ['git status -s', 'allow'],
    ['git status; ls', 'allow'],
    ['git status; id', 'ask'],
    ['git status > ~/.profile', 'ask'],
    ['git status > log', 'ask'],
    ['PATH=. git status', 'ask'],
    ['git status $x', 'ask'],
    ['git status $(id)', 'ask'],
    ['', 'ask'],
  ])('the text %j, where git status and ls are allowed: %s', (text, decision) => {
    expect(on(only, { command: text }).decision).toBe(decision);
  });

  test('what is no shell may do anything with its text', () => {
    expect(on(without, { cmd: 'ls', shell: '/usr/bin/rm' }).decision).toBe('deny');
    expect(on(only, { cmd: 'ls', shell: 'python3' }).decision).toBe('ask');
  });

  test('where only a part of a text is decided on, the tier decides on the rest', () => {
    const tiers = { system: 'ask' };
    const tools = { shell: { commands: [{ prefix: ['ls'], decision: 'allow' }] } };
    expect(on({ global: { tiers, tools } }, { command: 'ls; ls -l' }).decision).toBe('allow');
    expect(on({ global: { tiers, tools } }, { command: 'ls; id' }).decision).toBe('ask');
  });
});

test('C25: what asks to leave the sandbox goes to a person, whatever allows the rest; `sandbox: required` denies it', () => {
  const policy = { global: { tools: { shell: 'allow' } } };
  const params = { command: ['git', 'push', 'origin'], sandbox_permissions: 'require_escalated' };
  const asked = resultOf(policy, { params });
  expect(asked).toMatchObject({ decision: 'ask', rule: 'built-in.sandbox-permissions' });
  expect(asked.amendment).toBeUndefined();
  expect(resultOf(policy, { params, sandbox: 'required' })).toMatchObject({
    decision: 'deny',
    rule: 'built-in.sandbox',
  });
  expect(resultOf(policy, { params: { ...params, sandbox_permissions: 'use_default' } }).decision).toBe('allow');
});

test('I16: hosts, paths and methods are lists of what is allowed', () => {
  const rule = { hosts: ['*.example.com'], paths: ['docs/*'], methods: ['GET'] };
  const on = (params: object) =>
    resultOf({ global: { tools: { shell: rule } } }, { params: params as Record<string, unknown> });
  expect(on({ url: 'https://api.example.com/x', path: 'docs/a.md', method: 'get' }).decision).toBe('allow');
  expect(on({ url: 'https://example.com.evil.net/' }).rule).toMatch(/\.hosts$/);
  expect(on({ path: 'docs/../secrets' }).rule).toMatch(/\.paths$/);
  for (const name of ['filePath', 'file_path']) expect(on({ [name]: 'secrets' }).rule).toMatch(/\.paths$/);
  expect(on({ method: 'DELETE' }).rule).toMatch(/\.methods$/);
});

test('I16: of a list every entry is looked at', () => {
  const rule = { hosts: ['*.example.com'], paths: ['docs/*'] };
  const on = (params: Record<string, unknown>) => resultOf({ global: { tools: { shell: rule } } }, { params });
  expect(on({ paths: ['docs/a', 'docs/b'], urls: ['https://www.example.com/', 3] }).decision).toBe('allow');
  expect(on({ paths: ['docs/a', 'secrets/b'] }).reason).toContain('secrets/b');
  expect(on({ directories: ['docs/../secrets'] }).rule).toMatch(/\.paths$/);
  expect(on({ urls: ['https://www.example.com/', 'https://evil.net/'] }).reason).toContain('evil.net');
  expect(on({ hosts: ['evil.net'] }).rule).toMatch(/\.hosts$/);
});

test('I16: what stands in objects, and the files of a patch, are looked at', () => {
  const rule = { hosts: ['*.example.com'], paths: ['docs/*'] };
  const on = (params: Record<string, unknown>) => resultOf({ global: { tools: { shell: rule } } }, { params });
  const files = [{ path: 'docs/a', content: '' }];
  expect(on({ files, request: { url: 'https://www.example.com/' } }).decision).toBe('allow');
  expect(on({ files: [...files, { path: 'secrets/b' }] }).reason).toContain('secrets/b');
  expect(on({ request: { urls: ['https://evil.net/'] } }).reason).toContain('evil.net');
  const patched = (...heads: string[]) =>
    on({ patch: ['*** Begin Patch', ...heads.map((head) => `*** ${head}`), '*** End Patch'].join('\n') });
  expect(patched('Delete File: docs/a').decision).toBe('allow');
  expect(patched('Delete File: docs/a', 'Delete File: docs/../secrets/b').reason).toContain('the path secrets/b');
  expect(patched('Update File: docs/a', 'Move to: secrets/c').reason).toContain('the path secrets/c');
  expect(on({ patch: '--- a/secrets/d\n+++ b/secrets/d\n@@ -1 +1 @@\n-a\n+b\n' }).reason).toContain('secrets/d');
  const deep = JSON.parse(`${'['.repeat(50_000)}${']'.repeat(50_000)}`) as unknown;
  expect(on({ deep }).decision).toBe('allow');
});

test('I16: a parameter that a call leaves out is what its schema says', () => {
  const inputSchema = {
    type: 'object',
    properties: {
      path: { type: 'string', default: '.' },
      url: { type: 'string', default: 'https://evil.net/' },
      pattern: true,
      method: { type: 'string', default: 'DELETE' },
    },
  };
  const on = (rule: object, params: Record<string, unknown>) =>
    resultOf(
      { global: { tools: { shell: rule } } },
      { params, tool: { name: 'shell', tier: 'system', effects: 'once', inputSchema } },
    );
  expect(on({ paths: ['docs/*'] }, {}).rule).toMatch(/\.paths$/);
  expect(on({ paths: ['docs/*'] }, { path: 'docs/a' }).decision).toBe('allow');
  expect(on({ paths: ['.'] }, {}).decision).toBe('allow');
  expect(on({ hosts: ['*.example.com'] }, {}).rule).toMatch(/\.hosts$/);
  expect(on({ methods: ['GET'] }, {}).rule).toMatch(/\.methods$/);
});

test.each([grepFiles, glob, listDir])(
  'I16: a list of paths holds for $name without a path, which looks everywhere',
  (tool) => {
    const policy = { global: { tools: { [tool.name]: { paths: ['docs/*'] } } } };
    expect(resultOf(policy, { tool, params: { pattern: '*' } }).rule).toMatch(/\.paths$/);
    expect(resultOf(policy, { tool, params: { pattern: '*', path: 'docs/api' } }).decision).toBe('allow');
  },
);

describe('I16: a list of hosts parses a URL as fetch does', () => {
  const onHosts = (value: string) =>
    resultOf({ global: { tools: { shell: { hosts: ['*.example.com'] } } } }, { params: { value } });

  test.each([
    'https:/evil.net/',
    'https:evil.net',
    'https:\\\\evil.net\\',
    'h\tttps://evil.net/',
    'ht\ntps://evil.net/',
    '\u0001 https://evil.net/',
    'HTTPS:/EVIL.NET/',
    'https://www.example.com@evil.net/',
    'file:///etc/passwd',
  ])('%j is refused', (value) => expect(onHosts(value).rule).toMatch(/\.hosts$/));

  test.each([
    'https:/www.example.com/',
    'Answer: see https://evil.net/',
    'mailto:ada@evil.net',
    'C:\\notes',
    'evil.net',
  ])('%j names no other host', (value) => expect(onHosts(value).decision).toBe('allow'));
});

test('I23: parameters from outside send a call with effects to a person, when policy says so', () => {
  const policy = { global: { taint: 'ask' } };
  const taint = taintOf(['turn:1', 'taint:web_fetch']);
  expect(resultOf(policy, { taint })).toMatchObject({ decision: 'ask', reason: expect.stringContaining('web_fetch') });
  expect(resultOf(policy).decision).toBe('allow');
  expect(resultOf(policy, { taint, tool: { name: 'read', tier: 'read-only', effects: 'none' } }).decision).toBe(
    'allow',
  );
});

test('I23: what the session had seen when the call was made counts like what the call says of itself, once', () => {
  const session = {
    taint: [
      { source: 'web', atMs: 5 },
      { source: 'mail', atMs: 9 },
    ],
  };
  expect(taintOf(['taint:web', 'taint:user'], session)).toEqual(['web', 'user', 'mail']);
  expect(taintOf([], session, 5)).toEqual(['web']);
  expect(taintOf(undefined)).toEqual([]);
});

test('patterns: a star stands for any text', () => {
  expect(['a*c', '*', 'abc', 'a*b*c', 'ab*bc'].map((pattern) => matches(pattern, 'abc'))).toEqual([
    true,
    true,
    true,
    true,
    false,
  ]);
});

test('what deceives the eye is written out', () => {
  expect(escapeInvisible('a\u202eb\u200bc\u001b[2J\r\n\u2066')).toBe(
    'a\\u{202E}b\\u{200B}c\\u{1B}[2J\\u{D}\n\\u{2066}',
  );
  expect(formatForDisplay({ 'x\u202e': '\u{e0041}日本' })).toBe('{\n  "x\\u{202E}": "\\u{E0041}日本"\n}');
});
