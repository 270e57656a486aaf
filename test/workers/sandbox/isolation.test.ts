import { expect, test } from 'vitest';
import { chooseSandbox } from '../../../src/workers/sandbox/isolation.ts';

test('a mode that does not work is refused with what its trial printed', async () => {
  const trial = async () => 'sh: no permission to create a namespace';
  await expect(chooseSandbox('group', trial)).rejects.toMatchObject({
    code: 'CONFIGURATION',
    message: expect.stringContaining('group (sh: no permission to create a namespace)'),
  });
});
