import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parse as parseYaml } from 'yaml';
import { skillFileParts, skillFromFile, triggeredBy } from '../../../src/shared/sessions/skill.ts';
import { skillRule, skillsRefusal } from '../../../src/shared/sessions/skill-rule.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { contentOf, startFleet } from '../../helpers/fleet.ts';
import { echo, scripted } from '../../helpers/tools.ts';

const { tool: note } = scripted('note', () => ({ output: 'noted' }));

const FILE = `---
name: research
description: Looks things up.
allowed-tools: Echo, note
required_tools: [echo]
forbidden-tools: [note]
priority: 5
triggers: [look up, Source]
metadata: { author: somebody }
---
Quote your sources.
`;

const read = (text: string) => {
  const { front, instructions } = skillFileParts(text, 'SKILL.md');
  return skillFromFile(parseYaml(front), instructions, { source: 'SKILL.md', updatedAtMs: 1 });
};

function folderWith(files: Readonly<Record<string, string>>): string {
  const folder = temporaryFolder();
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(folder, name), { recursive: true });
    writeFileSync(join(folder, name, 'SKILL.md'), text);
  }
  return folder;
}

test('a SKILL.md is read, with what it says of tools and triggers, in any author’s format (A20, I5, I6)', () => {
  const skill = read(FILE);
  expect(skill).toMatchObject({
    name: 'research',
    allowedTools: ['Echo', 'note'],
    requiredTools: ['echo'],
    forbiddenTools: ['note'],
    priority: 5,
    instructions: 'Quote your sources.',
    source: 'SKILL.md',
  });
  expect(read(FILE.replaceAll('\n', '\r\n'))).toEqual(skill);
  expect(triggeredBy('Please LOOK UP the date.', [skill])).toEqual([skill]);
  expect(triggeredBy('Write a poem.', [skill])).toEqual([]);
  const broken = [
    'no front matter',
    '---\n- a list\n---\n',
    '---\nname: a\n---\n',
    '---\nname: { toString: 1 }\ndescription: b\n---\n',
    '---\nname: a\ndescription: b\npriority: high\n---\n',
    '---\nname: a\ndescription: b\nallowed-tools: Bash(git:*)\n---\n',
    '---\nname: ../a\ndescription: b\n---\n',
  ];
  for (const text of broken)
    expect(() => read(text), text).toThrow(expect.objectContaining({ code: 'CONTRACT_INVALID' }));
});

test('several skills add their tools together, and forbid together; names are matched in either case', () => {
  const skill = (name: string, change: object) =>
    skillFromFile({ name, description: name, ...change }, '', { source: '', updatedAtMs: 0 });
  const rule = skillRule([
    skill('one', { 'allowed-tools': 'Read, web_*', 'required-tools': ['note'] }),
    skill('two', { 'allowed-tools': ['mcp.files.*'], 'forbidden-tools': ['web_search'] }),
    skill('three', {}),
  ]);
  const refused = (name: string, namespace = 'tools') => skillsRefusal(rule && [rule], { name, namespace });
  for (const [name, namespace] of [['read'], ['web_fetch'], ['note'], ['read_file', 'mcp.files']] as const)
    expect(refused(name, namespace), name).toBeUndefined();
  expect(refused('web_search')).toBe('the session’s skills (one, two, three) forbid it');
  expect(refused('shell')).toBe('the session’s skills (one, two, three) do not allow it');
  expect(skillRule([skill('three', {})])).toBeUndefined();
});

test('a session sees and may call what its skills leave it, and those below it no more than that (I5, I6)', async () => {
  const settings = { skillFolders: [folderWith({ research: FILE })] };
  const { pawl, startWorker } = await startFleet({ tools: [echo, note], settings, workers: 0 });
  // A worker that knows no folders: the rule stands in the session.
  await startWorker({ settings: { skillFolders: [] } });
  const session = await pawl.openSession({ skills: ['research'] });
  expect(contentOf(await session.call('echo', { text: 'a' }))).toEqual({ text: 'a' });
  const refused = await session.call('note', {});
  expect(refused.error).toMatchObject({ code: 'PERMISSION_DENIED', message: expect.stringContaining('research') });
  const seen = async (key: string) => (await pawl.catalogue(key)).tools.map(({ name }) => name);
  expect(await seen(session.key)).toEqual(['echo']);
  expect((await session.toolsFor('openai')).tools).toHaveLength(1);
  const below = await session.branch();
  expect((await below.call('note', {})).error?.code).toBe('PERMISSION_DENIED');
  await pawl.skills.put('writing', { description: 'Writes.', allowedTools: ['note'] });
  const narrow = await pawl.openSession({ kind: 'branch', parent: session.key, skills: ['writing'] });
  expect(await seen(narrow.key)).toEqual([]);
  for (const name of ['note', 'echo'])
    expect((await narrow.call(name, { text: 'a' })).error?.code, name).toBe('PERMISSION_DENIED');
  // What becomes of a skill changes nothing for a session that is open.
  await pawl.skills.put('research', { description: 'A record comes before a file.' });
  expect((await session.call('note', {}, { idempotencyKey: 'again' })).error?.code).toBe('PERMISSION_DENIED');
  const wide = await pawl.openSession({ skills: ['research'] });
  expect(contentOf(await wide.call('note', {}))).toBe('noted');
});

test('a folder of skills may hold links to skills that lie elsewhere', async () => {
  const folder = temporaryFolder();
  symlinkSync(join(folderWith({ research: FILE }), 'research'), join(folder, 'linked'));
  symlinkSync(join(folder, 'nowhere'), join(folder, 'broken'));
  const { pawl } = await startFleet({ tools: [echo, note], workers: 0, settings: { skillFolders: [folder] } });
  expect((await pawl.skills.list()).map(({ name }) => name)).toEqual(['research']);
});

test('a skill never widens what policy, tier and kind of session leave (I5)', async () => {
  const policy = { global: { tools: { note: 'deny' as const } } };
  const { pawl } = await startFleet({ tools: [echo, note], settings: { policy } });
  await pawl.skills.put('all', { description: 'Allows everything.', allowedTools: ['*'] });
  const session = await pawl.openSession({ skills: ['all'] });
  expect((await session.call('note', {})).error?.code).toBe('PERMISSION_DENIED');
  const worker = await pawl.openSession({ kind: 'worker', parent: session.key, skills: ['all'] });
  expect((await worker.call('note', {}, { idempotencyKey: 'b' })).error?.code).toBe('PERMISSION_DENIED');
});

test('a skill that is unknown, off, broken or lacks a tool that it requires opens no session', async () => {
  const folder = folderWith({ broken: 'nothing' });
  const { pawl, openProducer, audited } = await startFleet({ tools: [echo] });
  await pawl.skills.put('off', { description: 'Off.', enabled: false });
  await pawl.skills.put('lacking', { description: 'Lacks.', requiredTools: ['deploy', 'echo'] });
  await pawl.skills.put('fixed', { description: 'Fixed.', mutable: false });
  const opening = (skill: string) => pawl.openSession({ skills: [skill] });
  await expect(opening('lackin')).rejects.toThrow('did you mean lacking?');
  await expect(opening('off')).rejects.toThrow('is disabled');
  await expect(opening('lacking')).rejects.toThrow('lacking requires deploy.');
  await expect(pawl.skills.put('fixed', { description: 'Changed.' })).rejects.toMatchObject({
    code: 'PERMISSION_DENIED',
  });
  await expect(pawl.skills.remove('fixed')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  expect(await pawl.skills.put('fixed', { description: 'Fixed.', mutable: false, enabled: false })).toMatchObject({
    enabled: false,
  });
  await pawl.skills.remove('off');
  await expect(pawl.skills.remove('off')).rejects.toMatchObject({ code: 'NOT_FOUND' });
  expect((await pawl.skills.list()).map(({ name }) => name)).toEqual(['fixed', 'lacking']);
  const changes = audited.flatMap((event) =>
    event.type === 'registry-changed' ? [`${event.action} ${event.tool}`] : [],
  );
  expect(changes).toEqual(['declared off', 'declared lacking', 'declared fixed', 'declared fixed', 'removed off']);
  const other = await openProducer({ skillFolders: [folder] });
  await expect(other.openSession({ skills: ['lacking'] })).rejects.toThrow('is not a valid SKILL.md');
  expect((await other.openSession()).record.skillRules).toBeUndefined();
});

test('a record that was written without a key is no skill', async () => {
  const { pawl, world } = await startFleet({
    tools: [echo],
    workers: 0,
    settings: { signingKeys: [{ kid: 'a', key: 'a-key-of-this-fleet' }] },
  });
  await pawl.skills.put('mine', { description: 'Mine.', forbiddenTools: ['echo'] });
  const [key = ''] = (await world.keys()).filter((each) => each.endsWith(':skills'));
  const stored = (await pawl.backend.redis.hget(key, 'mine')) ?? '';
  await pawl.backend.redis.hset(key, 'mine', stored.replace('["echo"]', '[]'), 'copy', stored);
  expect(await pawl.skills.list()).toEqual([]);
});
