import { expect, test } from 'vitest';
import { checkPackages, packagesNotInstalled } from '../../../src/cli/doctor/optional-packages.ts';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';

const without =
  (...names: readonly string[]) =>
  (packages: readonly string[]) =>
    packages.filter((name) => names.includes(name));

test('packages that no setting needs are worth a note, with a command for each feature', () => {
  const settings = resolveSettings({ options: {} });
  expect(checkPackages(settings, without('linkedom', '@bull-board/api'))).toEqual({
    check: 'packages',
    state: 'warn',
    message: 'the packages of 2 features are not installed; install those that you use',
    fix:
      'npm install linkedom   # The main content of web pages as Markdown\n' +
      'npm install @bull-board/api   # Bull Board at /queues',
  });
  expect(checkPackages(settings, without())).toMatchObject({ state: 'ok' });
});

test('packages that the settings need fail the check', () => {
  const settings = resolveSettings({ options: { otlpEndpoint: 'http://127.0.0.1:4318' } });
  expect(checkPackages(settings, without('@opentelemetry/sdk-node'))).toEqual({
    check: 'packages',
    state: 'fail',
    message: 'Sending traces to a collector is set, and needs @opentelemetry/sdk-node',
    fix: 'npm install @opentelemetry/sdk-node',
  });
});

test('a package counts as installed where Node would find it', () => {
  expect(packagesNotInstalled(['express', '@opentelemetry/api', 'no-such-package'])).toEqual(['no-such-package']);
});
