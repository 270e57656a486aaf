import { describe, expect, test } from 'vitest';
import { resultOf } from './policy-result.ts';

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
