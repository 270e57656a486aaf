import { expect, test } from 'vitest';
import { ToolError } from '../../src/shared/errors/failure.ts';
import { eventually } from '../helpers/signal.ts';
import { scripted } from '../helpers/tools.ts';
import { startRig } from '../producer/http/rig.ts';
import { describeInBrowser, openPage } from './browser.ts';

describeInBrowser('calls on the operator’s page', () => {
  test('shows delayed calls with their start, and cancels one', async () => {
    const { tool } = scripted('remind', () => ({ output: 'done' }));
    const { server, call, ask } = await startRig({ tools: [tool] });
    await call({ tool: 'remind', session: 's', idempotencyKey: 'now' });
    const startAt = new Date(Date.now() + 3 * 3_600_000);
    const later = await ask('/v1/calls', {
      method: 'POST',
      json: { tool: 'remind', session: 's', idempotencyKey: 'later', startAt: startAt.toISOString() },
    });
    expect(later.status).toBe(202);
    const page = await openPage(server.url);
    const shownStart = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' }).format(startAt);
    await page.getByRole('link', { name: 'Calls', exact: true }).click();
    await page.getByText('2 calls').waitFor();
    await page.getByLabel('State').selectOption('Delayed');
    await page.getByText('1 call', { exact: true }).waitFor();
    await page.getByText(`until ${shownStart}`).waitFor();
    await page.getByRole('link', { name: 'remind' }).click();
    await page.getByText('Waits for its start').waitFor();
    await page.getByText(`at ${shownStart}, without a worker`).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Cancel the call' }).click();
    await page.getByText('CANCELLED, cancelled before start').waitFor();
    expect((await ask(`/v1/calls/${later.body.callId}`)).body).toMatchObject({ settlement: 'cancelled-before-start' });
  });

  test('shows the newest calls, and on request as many as the API lists', async () => {
    const { tool } = scripted('remind', () => ({ output: 'done' }));
    const { server, pawl } = await startRig({ tools: [tool] });
    const session = await pawl.openSession({ actorId: 'ada' });
    const keys = Array.from({ length: 102 }, (_, index) => `${index}`);
    await Promise.all(keys.map((idempotencyKey) => session.call('remind', {}, { idempotencyKey })));
    const page = await openPage(server.url);
    await page.getByRole('link', { name: 'Calls', exact: true }).click();
    await page.getByText('100 calls, and more').waitFor();
    await page.getByRole('button', { name: 'Show up to 1000 calls' }).click();
    await page.getByText('102 calls', { exact: true }).waitFor();
    expect(await page.getByRole('button', { name: 'Show up to' }).count()).toBe(0);
    await page.getByRole('link', { name: 'remind' }).last().click();
    await page.getByText('What happened').waitFor();
    await page.goBack();
    await page.getByText('102 calls', { exact: true }).waitFor();
  });

  test('shows pending calls with the time until which they wait', async () => {
    const { tool } = scripted('pay', (ctx) => ctx.pending({ expiresInMs: 3 * 3_600_000 }));
    const { server, call, pawl } = await startRig({ tools: [tool] });
    const { callId } = (await call({ tool: 'pay', session: 's' }, { wait: 0 })).body;
    const record = await eventually(async () => {
      const read = await pawl.read(callId);
      return read?.phase === 'pending' && read;
    });
    const page = await openPage(server.url);
    const shownEnd = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' }).format(
      record.pendingUntilMs,
    );
    await page.getByRole('link', { name: 'Calls', exact: true }).click();
    await page.getByLabel('State').selectOption('Pending');
    await page.getByText(`until ${shownEnd}`).waitFor();
    await page.getByRole('link', { name: 'pay' }).click();
    await page.getByText('Attempt 1 left the call to an outside system').waitFor();
    await page.getByText(`until ${shownEnd} at most, without a worker`).waitFor();
  });

  test('shows a callback that fails, and sends it again', async () => {
    const { tool } = scripted('pay', () => ({ output: 'paid' }));
    const { server, call, pawl } = await startRig({ tools: [tool] });
    const callbackUrl = 'http://127.0.0.1:9/settled';
    await call({ tool: 'pay', session: 's', callbackUrl });
    const attempts = async () => (await pawl.callbacks.list({ state: 'failing' })).callbacks[0]?.attempts;
    const before = await eventually(attempts);
    const page = await openPage(server.url);
    await page.getByRole('link', { name: 'Fleet', exact: true }).click();
    await page.getByRole('heading', { name: 'Failing callbacks' }).waitFor();
    await page.getByText(callbackUrl).waitFor();
    await page.getByRole('button', { name: 'Replay' }).click();
    await page.getByText('The callback is sent again').waitFor();
    await eventually(async () => ((await attempts()) ?? 0) > before);
  });

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
