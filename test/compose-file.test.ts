/** docker-compose.yml as a text: what the composed stack needs before any container runs. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { parse } from 'yaml';

interface Service {
  readonly command?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes?: readonly string[];
  readonly working_dir?: string;
  readonly deploy?: { readonly resources: { readonly limits: { readonly memory: string } } };
}

const text = (name: string) => readFileSync(fileURLToPath(new URL(`../${name}`, import.meta.url)), 'utf8');
const { services, volumes } = parse(text('docker-compose.yml'), { merge: true }) as {
  readonly services: Readonly<Record<string, Service>>;
  readonly volumes: Readonly<Record<string, unknown>>;
};
const dockerfile = text('Dockerfile');
const api = Object.entries(services).filter(([, { command }]) => command?.[0] === 'serve');
const workers = Object.entries(services).filter(([, { command }]) => command?.[0] === 'worker');

test('the data folder of every process is on a volume that its user may write to: one of the API, one of all workers', () => {
  const folder = /PAWL_DATA_DIR=(\S+)/.exec(dockerfile)?.[1];
  // A new volume takes the owner of the folder that it is mounted on.
  expect(dockerfile).toMatch(new RegExp(`install -d -o node -g node .*${folder}\\b`));
  const mounted = ([, service]: readonly [string, Service]) =>
    (service.volumes ?? []).filter((volume) => volume.includes(`:${folder}`));
  expect(api.map(mounted)).toEqual([[`data-api:${folder}`]]);
  expect(workers.map(mounted)).toEqual([1, 2, 3, 4].map(() => [`data-workers:${folder}`]));
  expect(Object.keys(volumes)).toEqual(expect.arrayContaining(['data-api', 'data-workers']));
});

test('Redis is full before its container is: calls are refused then, where a kill would come again after each start', () => {
  const megabytes = (size: string | undefined) => {
    const [, number, unit] = /(\d+)(g|mb)/.exec(size ?? '') ?? [];
    return Number(number) * (unit === 'g' ? 1_024 : 1);
  };
  const { command = [], deploy } = services['redis'] as Service;
  const full = /:-(\w+)\}/.exec(command.find((option) => option.startsWith('--maxmemory ')) ?? '')?.[1];
  const limit = /:-(\w+)\}/.exec(deploy?.resources.limits.memory ?? '')?.[1];
  expect(megabytes(full)).toBeGreaterThan(0);
  expect(megabytes(full)).toBeLessThan(0.75 * megabytes(limit));
  for (const size of [full, limit]) expect(text('docs/deployment.md')).toContain(`\`${size}\``);
});

test('pawl.config is not looked for where tools may write', () => {
  for (const [name, { working_dir, volumes: mounts = [] }] of [...api, ...workers]) {
    expect(working_dir, name).toBeDefined();
    expect(
      mounts.filter((mount) => mount.split(':')[1] === working_dir),
      name,
    ).toEqual([]);
  }
});

test('the settings that docs/deployment.md names reach every process, and say nothing where nothing is set', () => {
  const [, list = ''] = /## Settings\n\n([\s\S]*?)\n\n/.exec(text('docs/deployment.md')) ?? [];
  const named = [...list.matchAll(/`([A-Z][A-Z_]+)`/g)].map(([, name]) => name ?? '');
  const skipped = Object.keys(workers[0]?.[1].environment ?? {});
  const ofCompose = /^(PAWL_API_TOKENS|PAWL_SIGNING_KEYS|PAWL_HTTP_PORT|PAWL_REDIS_\w+|\w+_IMAGE)$/;
  expect(skipped).toEqual(expect.arrayContaining(named.filter((name) => !ofCompose.test(name))));
  // A default here would stand above pawl.config.
  for (const [name, { environment = {} }] of [...api, ...workers])
    for (const [variable, value] of Object.entries(environment))
      if (variable !== 'PAWL_PREFIX') expect(String(value), `${name}: ${variable}`).not.toMatch(/^\$\{\w+:-.+\}$/);
});

test('workers run with a seccomp profile that lets bubblewrap make its sandbox', () => {
  const profile = JSON.parse(text('docker/seccomp.json')) as {
    readonly defaultAction: string;
    readonly syscalls: readonly { readonly names: readonly string[]; readonly action: string }[];
  };
  const refused = profile.syscalls.flatMap(({ names, action }) => (action === 'SCMP_ACT_ALLOW' ? [] : names));
  expect(profile.defaultAction).toBe('SCMP_ACT_ALLOW');
  for (const needed of [
    'clone',
    'unshare',
    'mount',
    'umount2',
    'pivot_root',
    'sethostname',
    'prctl',
    'seccomp',
    'capset',
  ])
    expect(refused).not.toContain(needed);
  for (const dangerous of ['bpf', 'keyctl', 'kexec_load', 'open_by_handle_at', 'ptrace', 'setns', 'io_uring_setup'])
    expect(refused).toContain(dangerous);
  expect(dockerfile).toMatch(/TOOL_PACKAGES="[^"]*bubblewrap/);
  for (const [name, service] of workers)
    expect((service as { readonly security_opt?: readonly string[] }).security_opt, name).toEqual(
      expect.arrayContaining(['no-new-privileges:true', 'seccomp=./docker/seccomp.json', 'systempaths=unconfined']),
    );
});
