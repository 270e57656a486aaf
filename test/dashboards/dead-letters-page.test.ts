import { expect, test } from 'vitest';
import { ToolError } from '../../src/shared/errors/failure.ts';
import { scripted } from '../helpers/tools.ts';
import { startRig } from '../producer/http/rig.ts';
import { describeInBrowser, openPage } from './browser.ts';

describeInBrowser('the operator’s page', () => {
  test('shows dead letters, redrives them after a dry run, and discards one', async () => {
    let isOpen = false;
    const { tool } = scripted('pay', () => {
      if (!isOpen) throw new ToolError('the bank is closed', { code: 'BANK_CLOSED' });
      return { output: 'paid' };
    });
    const { server, call, ask } = await startRig({ tools: [tool] });
    const ids: string[] = [];
    for (const key of ['a', 'b', 'c'])
      ids.push((await call({ tool: 'pay', session: 's', idempotencyKey: key })).body.callId as string);
    const page = await openPage(server.url);
    await page.getByRole('link', { name: 'Dead letters' }).click();
    await page.getByText('3 dead letters').waitFor();
    await page.getByText('BANK_CLOSED 3').waitFor();
    await page.getByRole('searchbox', { name: 'Code' }).fill('OTHER');
    await page.getByText('No dead letter matches.').waitFor();
    await page.getByRole('searchbox', { name: 'Code' }).fill('BANK_CLOSED');
    await page.getByRole('link', { name: ids[0] ?? '' }).waitFor();

    await page.getByRole('searchbox', { name: 'Session' }).fill('s');
    isOpen = true;
    await page
      .getByRole('row')
      .filter({ hasText: ids[0] ?? '' })
      .getByRole('button', { name: 'Redrive' })
      .click();
    await page.getByText('1 call would run again. None would be skipped.').waitFor();
    await page.getByLabel('Why').fill('open again');
    await page.getByRole('button', { name: 'Redrive', exact: true }).last().click();
    await page.getByText('1 of 1 call redriven by now').waitFor();
    await page.getByText('2 dead letters').waitFor();
    await page.getByRole('row').filter({ hasText: 'open again' }).waitFor();
    expect((await ask(`/v1/calls/${ids[0]}?wait=5000`)).body).toMatchObject({ state: 'done' });

    await page.getByRole('button', { name: 'Discard all that match' }).click();
    await page.getByText('Discard 2 dead letters?').waitFor();
    await page.getByRole('button', { name: 'Discard', exact: true }).click();
    await page.getByText('2 dead letters discarded').waitFor();
    await page.getByText('No dead letter matches.').waitFor();
    await page.getByRole('link', { name: 'Calls', exact: true }).click();
    await page.getByRole('row').filter({ hasText: 'done' }).getByRole('link', { name: 'pay' }).click();
    await page.getByText('by local operator, after it had failed with BANK_CLOSED').waitFor();
  });
});
