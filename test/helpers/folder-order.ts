/** Rule 6: the order of the folders, import cycles and the size of a folder. Types count as imports. */
import { posix } from 'node:path';
import { blank, importsOf, type Source } from './architecture.ts';

/**
 * The concepts of each layer, from the lowest to the highest. Each may import those of the lines before it; two of one line do not
 * know each other. An empty name stands for the files of the layer itself.
 */
const ORDER: Readonly<Record<string, readonly (readonly string[])[]>> = {
  'src/shared': [
    ['util'],
    ['errors'],
    ['circuits', 'schema', 'patches'],
    ['retries'],
    ['tools'],
    ['calls'],
    ['audit', 'limits', 'model-tools', 'queues', 'schedules', 'callbacks'],
    ['groups'],
    ['sessions', 'signing'],
    ['approvals'],
    ['policy'],
    ['config', 'connectors'],
    ['telemetry'],
  ],
  'src/shared/store': [
    ['redis'],
    ['blobs', 'queues', 'audit', 'telemetry', 'signing'],
    [
      'config',
      'limits',
      'circuits',
      'sessions',
      'fleet',
      'dead-letters',
      'schedules',
      'groups',
      'callbacks',
      'segments',
    ],
    ['calls', 'connectors', 'dedupe'],
    ['dispatch', 'completions'],
    ['approvals', 'redrives'],
    [''],
  ],
  'src/producer': [
    ['tools'],
    ['approvals', 'circuits'],
    ['calls'],
    ['groups'],
    ['callbacks'],
    ['sessions', 'operations'],
    ['completions'],
    ['dead-letters', 'schedules'],
    [''],
    ['adapters', 'http/core'],
    ['http/routes'],
    ['http/route-table.ts', 'http/static-page.ts'],
    ['mcp'],
    ['http/server.ts'],
  ],
  'src/workers': [
    ['sandbox'],
    ['workspace'],
    ['attempt'],
    ['circuits', 'approvals', 'context'],
    ['callbacks'],
    ['connectors'],
    ['outcome'],
    ['execution'],
    ['queue'],
    ['tools'],
    [''],
  ],
};
const LAYERS = Object.keys(ORDER).sort((one, other) => other.length - one.length);

interface Room {
  readonly layer: string;
  readonly rank: number;
  readonly concept: string;
}

/** The room of a source; undefined outside of the ordered layers. Throws for a concept that the order does not name. */
function roomOf(path: string): Room | undefined {
  const layer = LAYERS.find((name) => path.startsWith(`${name}/`));
  if (layer === undefined) return undefined;
  const parts = path.slice(layer.length + 1).split('/');
  const candidates = [parts.slice(0, 2).join('/'), parts.length > 1 ? (parts[0] ?? '') : ''];
  for (const concept of candidates) {
    const rank = ORDER[layer]?.findIndex((line) => line.includes(concept)) ?? -1;
    if (rank !== -1) return { layer, rank, concept };
  }
  throw new Error(`${path} stands in a folder that the order of ${layer}/ does not name: add it to ORDER`);
}

function targetsOf({ path, text }: Source): readonly string[] {
  return importsOf(blank(text, { strings: false }))
    .filter(({ specifier }) => specifier.startsWith('.'))
    .map(({ specifier }) => posix.join(posix.dirname(path), specifier));
}

/** Imports that go against the order of the folders. */
export function backwardImports(sources: readonly Source[]): readonly string[] {
  return sources.flatMap((source) => {
    const from = roomOf(source.path);
    return targetsOf(source)
      .filter((target) => {
        const to = roomOf(target);
        if (from === undefined || to === undefined || from.layer !== to.layer) return false;
        return from.concept === to.concept ? false : to.rank >= from.rank;
      })
      .map((target) => `${source.path} imports ${target}`);
  });
}

/** Import cycles, types included: each as the files that stand in it. */
export function importCycles(sources: readonly Source[]): readonly (readonly string[])[] {
  const targets = new Map(sources.map((source) => [source.path, targetsOf(source)]));
  const reaches = (from: string): Set<string> => {
    const seen = new Set<string>();
    const open = [...(targets.get(from) ?? [])];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      if (seen.has(next)) continue;
      seen.add(next);
      open.push(...(targets.get(next) ?? []));
    }
    return seen;
  };
  const inCycle = [...targets.keys()]
    .map((path) => ({ path, reached: reaches(path) }))
    .filter(({ path, reached }) => reached.has(path));
  const cycles = inCycle.map(({ path, reached }) =>
    [
      path,
      ...inCycle
        .filter((other) => other.path !== path && reached.has(other.path) && other.reached.has(path))
        .map((other) => other.path),
    ].sort(),
  );
  return [...new Map(cycles.map((cycle) => [cycle.join(' '), cycle])).values()];
}

/** Folders with more than `most` files. */
export function crowdedFolders(paths: readonly string[], most: number): readonly string[] {
  const sizes = new Map<string, number>();
  for (const path of paths) sizes.set(posix.dirname(path), (sizes.get(posix.dirname(path)) ?? 0) + 1);
  return [...sizes].filter(([, size]) => size > most).map(([folder, size]) => `${folder} has ${size} files`);
}
