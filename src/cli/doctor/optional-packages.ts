/** The check of `pawl doctor` for packages that only some features need. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Settings } from '../../shared/config/config.ts';
import { installCommand, OPTIONAL_FEATURES, type OptionalFeatureName } from '../../shared/errors/optional-packages.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

/** Settings that turn on a feature which cannot do without its packages. */
const ENABLED_BY: Partial<Record<OptionalFeatureName, (settings: Settings) => boolean>> = {
  traces: ({ otlpEndpoint }) => otlpEndpoint !== undefined,
  largeMemory: ({ memory }) => (memory.store ?? (memory.uri === undefined ? 'sqlite' : 'lancedb')) === 'lancedb',
};

/** Fails where the settings need packages that are missing; other missing packages are a note. */
export function checkPackages(
  settings: Settings | undefined,
  notInstalled: (packages: readonly string[]) => readonly string[] = packagesNotInstalled,
): Finding {
  const check = 'packages';
  const incomplete = Object.entries(OPTIONAL_FEATURES).flatMap(([name, feature]) => {
    const missing = notInstalled(feature.packages);
    const isOn = settings !== undefined && ENABLED_BY[name as OptionalFeatureName]?.(settings) === true;
    return missing.length === 0 ? [] : [{ ...feature, missing, isOn }];
  });
  const needed = incomplete.filter(({ isOn }) => isOn);
  if (needed.length > 0)
    return fail(
      check,
      needed.map(({ purpose, missing }) => `${purpose} is set, and needs ${missing.join(', ')}`).join('; '),
      installCommand(needed.flatMap(({ missing }) => missing)),
    );
  if (incomplete.length === 0) return ok(check, 'all optional packages are installed');
  return warn(
    check,
    `the packages of ${plural(incomplete.length, 'feature')} are not installed; install those that you use`,
    incomplete.map(({ purpose, missing }) => `${installCommand(missing)}   # ${purpose}`).join('\n'),
  );
}

/** The packages of a feature that are not installed beside Pawl. Nothing of them is run. */
export function packagesNotInstalled(packages: readonly string[]): readonly string[] {
  const require = createRequire(import.meta.url);
  return packages.filter(
    (name) => require.resolve.paths(name)?.every((folder) => !existsSync(join(folder, name, 'package.json'))) ?? true,
  );
}
