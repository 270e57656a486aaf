/** Rule 7: what a file exports is used elsewhere. Who reads the file then knows what others rely on. */
import type { Source } from './architecture.ts';

const EXPORTED = /^export (?:async |abstract )*(?:function\*?|const|class|interface|type|enum|let) ([\w$]+)/gm;
/** The compiler writes these into declarations of files that do not name them. */
const NAMED_BY_INFERENCE = ['PlanApproval'];

/** The exported names of `sources` that no other source and no `user` names. Those of `entries` are for programs that import Pawl. */
export function unusedExports(
  sources: readonly Source[],
  users: readonly Source[],
  entries: readonly string[],
): readonly string[] {
  const filesOf = new Map<string, number>();
  for (const { text } of [...sources, ...users])
    for (const name of new Set(text.match(/[\w$]+/g))) filesOf.set(name, (filesOf.get(name) ?? 0) + 1);
  return sources
    .filter(({ path }) => !entries.includes(path))
    .flatMap(({ path, text }) =>
      [...text.matchAll(EXPORTED)]
        .map(([, name = '']) => name)
        .filter((name) => filesOf.get(name) === 1 && !NAMED_BY_INFERENCE.includes(name))
        .map((name) => `${path} exports ${name}, which no other file uses`),
    );
}
