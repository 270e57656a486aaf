/** Repositories that programs make: git runs nothing in them at the owner's next command. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { temporaryFolder } from '../../helpers/context.ts';
import { expectUnchangeable, files, git, hasSandbox, run } from '../sandbox/boundary-checks.ts';

const confined = test.skipIf(!hasSandbox);

confined(
  'a program makes no repository of plain folders, adds nothing to one that was there, and may make new ones',
  async () => {
    const root = temporaryFolder();
    git(root, 'init', '-q');
    git(root, 'commit', '-q', '--allow-empty', '-m', 'first');
    git(root, 'worktree', 'add', '-q', 'tree');
    git(root, 'init', '-q', '--bare', 'own.git');
    files(root, { 'src/a.ts': '', 'src/config': 'mine', 'nested/a.ts': '', '.git/modules/sub/config': 'mine' });
    git(join(root, 'nested'), 'init', '-q');
    const plant = (folder: string, objects: string) =>
      `(cd ${folder} && echo ref: refs/heads/x > HEAD && mkdir -p ${objects} refs hooks && echo "[core]fsmonitor=evil" > config)`;
    const { stderr } = await run(
      root,
      [
        'rm .git/HEAD nested/.git/HEAD',
        ...['.', 'src', 'nested'].map((folder) => plant(folder, 'objects')),
        'echo evil > .git/worktrees/tree/config.worktree',
        'mkdir .git/modules/sub/hooks; echo evil > .git/modules/sub/hooks/post-checkout',
        'mkdir clone clone.git; git init -q clone; git init -q --bare clone.git',
      ].join('\n'),
    );
    expect(stderr).toContain('Pawl renamed');
    for (const folder of ['.', 'src', 'nested']) expect(readdirSync(join(root, folder)), folder).not.toContain('HEAD');
    expect(readFileSync(join(root, 'src/config'), 'utf8')).toContain('evil');
    expect(readdirSync(join(root, '.git/worktrees/tree'))).not.toContain('config.worktree');
    expect(readdirSync(join(root, '.git/modules/sub'))).not.toContain('hooks');
    for (const kept of ['clone/.git/config', 'clone/.git/HEAD', 'clone.git/HEAD', 'clone.git/config', 'own.git/HEAD'])
      expect(existsSync(join(root, kept)), kept).toBe(true);
  },
);

const GIT = {
  program: 'git init -q X && git -C X config core.fsmonitor "touch $PWD/ran; false"',
  'program in one line': 'git init -q X && echo "[user] [core] fsmonitor = touch $PWD/ran" >> X/.git/config',
  'program in a joined line':
    'git init -q X && printf \'[user]\\n\\tname = a\\\\\\n\\n[core]\\n\\tfsmonitor = "touch %s/ran"\\n\' $PWD >> X/.git/config',
  include: 'git init -q X && git -C X config include.path ../evil',
  hook: 'git init -q X && echo "touch $PWD/ran" > X/.git/hooks/post-checkout && chmod +x X/.git/hooks/post-checkout',
  'settings of a worktree':
    'git init -q X && git -C X config extensions.worktreeConfig true && git -C X config --worktree core.fsmonitor "touch $PWD/ran; false"',
  link: 'git init -q .git/evil && mkdir -p X && ln -s ../.git/evil/.git X/.git',
  'linked settings': 'git init -q X && cp X/.git/config X/own && ln -sf ../own X/.git/config',
  'named folder': 'git init -q .git/evil && mkdir -p X && echo "gitdir: ../.git/evil/.git" > X/.git',
  'folder of another':
    'mkdir -p X && echo ref: refs/heads/x > X/HEAD && echo $PWD/.git > X/commondir && printf "[core]\\n\\tbare = false\\n\\tworktree = %s/X\\n\\tfsmonitor = touch %s/ran\\n" $PWD $PWD > X/config.worktree',
  bare: 'git init -q --bare X && git -C X config core.pager "touch $PWD/ran"',
};

confined.each(Object.entries(GIT))(
  'git runs nothing in a repository that a program made: %s',
  async (_what, script) => {
    const root = temporaryFolder();
    git(root, 'init', '-q');
    git(root, 'config', 'extensions.worktreeConfig', 'true');
    files(root, { 'plain/a.ts': '' });
    const { exitCode, stderr } = await run(
      root,
      ['plain', 'new'].map((name) => script.replaceAll('X', name)).join('; '),
    );
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
    for (const folder of ['plain', 'new']) spawnSync('git', ['-C', join(root, folder), 'status', '--short']);
    expect(readdirSync(root)).not.toContain('ran');
    expect(stderr).toContain('Pawl renamed');
  },
);

confined('programs may make worktrees, submodules and clones', async () => {
  const root = temporaryFolder();
  git(root, 'init', '-q');
  git(root, 'commit', '-q', '--allow-empty', '-m', 'first');
  const { exitCode, stderr } = await run(
    root,
    'git clone -q . clone && git -C clone config user.email a@b && git clone -q --bare . clone.git && git -C clone worktree add -q ../tree && git -C clone checkout -q -b other && git init -q module && git -C module -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && git -C clone -c protocol.file.allow=always submodule --quiet add ../module sub',
  );
  expect({ exitCode, stderr }).toMatchObject({ exitCode: 0, stderr: expect.not.stringContaining('renamed') });
  for (const folder of ['clone', 'tree', 'clone/sub', 'module'])
    expect(String(git(join(root, folder), 'status', '--short')), folder).not.toContain('fatal');
});

/** In `tree`, a worktree, a rebase waits for a person. */
function withConflict(root: string): void {
  git(root, 'init', '-q', '-b', 'one');
  git(root, 'commit', '-q', '--allow-empty', '-m', 'first');
  git(root, 'worktree', 'add', '-q', '-b', 'two', 'tree');
  for (const folder of ['.', 'tree']) {
    files(join(root, folder), { a: folder });
    git(join(root, folder), 'add', 'a');
    git(join(root, folder), 'commit', '-q', '-m', folder);
  }
}

confined('programs may continue a rebase that another one began', async () => {
  const root = temporaryFolder();
  withConflict(root);
  const begun = await run(root, 'git -C tree rebase one');
  expect(begun).toMatchObject({ exitCode: 1, stderr: expect.not.stringContaining('renamed') });
  const script = 'echo both > a && git add a && GIT_EDITOR=true git -c user.name=a -c user.email=a@b rebase --continue';
  expect(await run(root, `cd tree && ${script}`)).toMatchObject({ exitCode: 0 });
  expect(String(git(root, 'log', '--oneline', 'two')).split('\n')).toHaveLength(4);
});

confined.each([
  ['rebase one', 'rebase-merge', 'echo "  x touch ran" >> git-rebase-todo'],
  ['rebase one', 'rebase-merge', 'echo p/evil > strategy; echo "pick two" >> git-rebase-todo'],
  ['rebase one', 'rebase-merge', 'rm -r ../rebase-merge; ln -s ../../../plain ../rebase-merge'],
  ['cherry-pick one', 'sequencer', 'printf "[options]\\nstrategy = p/evil\\n" > opts; echo "pick one" > todo'],
])('no program plants a command in a step of git: %s, %s, %s', async (command, name, plant) => {
  const root = temporaryFolder();
  withConflict(root);
  expect(() => git(join(root, 'tree'), ...command.split(' '))).toThrow();
  const folder = `.git/worktrees/tree/${name}`;
  files(root, { 'plain/git-rebase-todo': 'exec touch ran' });
  const { stderr } = await run(root, `mkdir -p ${folder} && cd ${folder} && ${plant}`);
  expect(stderr).toContain('Pawl renamed');
  expect(existsSync(join(root, folder))).toBe(false);
  const own = `.git/${name}`;
  files(root, { [`${own}/git-rebase-todo`]: 'exec mine', [`${own}/opts`]: 'mine' });
  await expectUnchangeable(root, [`${own}/git-rebase-todo`, `${own}/opts`]);
});

confined('no call plants a command in a step of git in a worktree of a plain repository', async () => {
  const root = temporaryFolder();
  withConflict(root);
  git(root, 'clone', '-q', '--bare', '.', 'plain.git');
  git(join(root, 'plain.git'), 'worktree', 'add', '-q', '../own', 'two');
  const folder = 'plain.git/worktrees/own';
  files(root, { [`${folder}/rebase-merge/git-rebase-todo`]: 'exec mine' });
  await expectUnchangeable(root, [`${folder}/rebase-merge/git-rebase-todo`, `${folder}/commondir`]);
  await run(root, `cd ${folder} && mkdir sequencer && printf "[options]\\nstrategy = p/evil\\n" > sequencer/opts`);
  expect(existsSync(join(root, folder, 'sequencer'))).toBe(false);
});
