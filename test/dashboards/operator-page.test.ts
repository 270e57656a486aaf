import { mkdirSync } from 'node:fs';
import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import { eventually } from '../helpers/signal.ts';
import { startRig } from '../producer/http/rig.ts';
import { clickOnTheNext, describeInBrowser, openPage } from './browser.ts';
import { rig, row } from './operator-rig.ts';

/** `PAWL_IMAGES=docs/images` keeps what the page looked like. */
const images = process.env['PAWL_IMAGES'];

async function keep(page: Page, name: string): Promise<void> {
  if (images === undefined) return;
  mkdirSync(images, { recursive: true });
  await page.screenshot({ path: `${images}/${name}.png` });
}

const widthOf = async (page: Page) => Number(await page.evaluate('document.documentElement.scrollWidth'));

/** The files that the page loads to open, and their bytes. */
async function openingOf(page: Page): Promise<{ readonly files: number; readonly bytes: number }> {
  const sizes = (await page.evaluate(`['navigation', 'resource'].flatMap((type) => performance.getEntriesByType(type))
    .filter(({ initiatorType }) => initiatorType !== 'fetch').map(({ transferSize }) => transferSize)`)) as number[];
  return { files: sizes.length, bytes: sizes.reduce((sum, size) => sum + size, 0) };
}

describeInBrowser('the operator’s page in Chromium', () => {
  test('shows calls as they come, filters them, and tells a call’s whole story, by keyboard', async () => {
    const { server, call } = await rig({ traceUrl: 'http://127.0.0.1:16686/trace/{traceId}' });
    const page = await openPage(server.url, { viewport: { width: 1180, height: 760 } });
    await page.getByRole('link', { name: 'Calls' }).click();
    await page.getByText('No call matches.').waitFor();
    await call('get_weather', { city: 'Paris', token: 'a-secret-nobody-sees' });
    await call('sync_orders', { since: '2026-11-01' });
    await call('rebuild_index', {}, 0);
    await row(page, 'rebuild_index').getByText('running').waitFor();
    await keep(page, 'calls');
    await page.keyboard.press('/');
    await page.keyboard.type('orders');
    await row(page, 'get_weather').waitFor({ state: 'detached' });
    await page.keyboard.press('Escape');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'sync_orders 2.0.1' }).waitFor();
    await page.getByText('Attempt 1 failed: HTTP_503').waitFor();
    await page.getByText(/fence 2, .*after waiting/).waitFor();
    await page.getByText('Ended: success').waitFor();
    const trace = page.getByRole('link', { name: '4bf92f3577b34da6a3ce929d0e0e4736' });
    expect(await trace.getAttribute('href')).toBe('http://127.0.0.1:16686/trace/4bf92f3577b34da6a3ce929d0e0e4736');
    await keep(page, 'call');
  });

  test('opens with few and small files, shows parameters without their secrets, and the progress of what runs', async () => {
    const { server, call, release } = await rig();
    await call('get_weather', { city: 'Paris', token: 'a-secret-nobody-sees' });
    await call('rebuild_index', {}, 0);
    const page = await openPage(server.url, { viewport: { width: 1180, height: 760 } });
    const { files, bytes } = await openingOf(page);
    expect(bytes).toBeGreaterThan(files);
    expect(files).toBeLessThanOrEqual(30);
    expect(bytes).toBeLessThanOrEqual(200_000);
    await page.getByRole('link', { name: 'Calls' }).click();
    await row(page, 'get_weather').getByRole('link', { name: 'get_weather' }).click();
    await page.getByText('[redacted]').waitFor();
    expect(await page.content()).not.toContain('a-secret-nobody-sees');
    await page.goBack();
    await page.getByRole('link', { name: 'rebuild_index' }).click();
    await page.getByText('shards, 3 of 8').waitFor();
    release();
    await page.getByText('Ended: success').waitFor();
  });

  test('an operator resolves a call in doubt, forces a circuit open and resets it, and drains a worker, each after a question', async () => {
    const { server, call, ask, release } = await rig();
    const page = await openPage(server.url, { viewport: { width: 1180, height: 760 } });
    const { callId } = await call('charge_card', { amount: 12 });
    await page.goto(`${server.url}/#ledger`);
    await row(page, 'charge_card').getByRole('button', { name: 'Resolve' }).click();
    await page.getByLabel('Outcome').selectOption('It did not happen');
    await page.getByRole('dialog').getByRole('button', { name: 'Resolve' }).click();
    await page.getByText('No call is in doubt').waitFor();
    expect((await ask(`/v1/calls/${callId}`)).body.result.error.code).toBe('TOOL_FAILED');

    await page.getByRole('link', { name: 'Circuits' }).click();
    await page.getByRole('button', { name: 'Force one open' }).click();
    await page.getByLabel('Tool').fill('no_such_tool');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').filter({ hasText: 'no_such_tool' }).waitFor();
    await page.getByLabel('Tool').fill('get_weather');
    await page.getByLabel('Why (optional)').fill('the service is being moved');
    await page.keyboard.press('Enter');
    await row(page, 'tool:tools.get_weather').getByText('FORCED OPEN').first().waitFor();
    expect((await call('get_weather', { city: 'Oslo' })).status).toBe('circuit_open');
    await keep(page, 'circuits');
    await row(page, 'tool:tools.get_weather').getByRole('button', { name: 'Reset' }).click();
    await page.keyboard.press('Escape');
    await row(page, 'tool:tools.get_weather').getByRole('button', { name: 'Reset' }).click();
    await page.getByRole('button', { name: 'Reset it' }).click();
    await row(page, 'tool:tools.get_weather').getByText('CLOSED').first().waitFor();
    // The page may know it before the producer has heard of it.
    await eventually(async () => (await call('get_weather', { city: 'Oslo' })).status === 'success');

    await page.getByRole('link', { name: 'Audit' }).click();
    await row(page, 'the service is being moved').getByText('override').waitFor();
    await page.getByRole('searchbox', { name: 'Tool' }).fill('tools.charge_card');
    await page.keyboard.press('Tab');
    await row(page, 'the service is being moved').waitFor({ state: 'detached' });
    await row(page, 'resolution').waitFor();

    await page.getByRole('link', { name: 'Fleet' }).click();
    await call('rebuild_index', {}, 0);
    await row(page, 'workspace').getByText('1 of 8').first().waitFor();
    await keep(page, 'fleet');
    await page.getByRole('table', { name: 'Workers' }).getByText(/^1 of/).waitFor();
    await page.getByRole('button', { name: 'Drain' }).click();
    await page.getByText('finishes the 1 it runs').waitFor();
    await page.getByRole('button', { name: 'Drain the worker' }).click();
    await page.getByRole('table', { name: 'Workers' }).getByText('draining').waitFor();
    release();
    await page.getByText('No worker lives.').waitFor();
  });

  test('a tool’s question with options is answered on the page, after a reload; its messages stand in the session', async () => {
    const { server, call, ask } = await rig();
    const page = await openPage(server.url, { viewport: { width: 1180, height: 760 } });
    await call('message', { text: 'The old index is 40 GB.' });
    const options = [
      { label: 'Delete it', value: 'delete', description: 'Frees 40 GB now.' },
      { label: 'Keep it', value: 'keep' },
    ];
    const { callId } = await call('request_user_input', { question: 'What about the old index?', options }, 0);
    await page.getByText('What about the old index?').waitFor();
    await page.reload();
    await page.getByText('What about the old index?').waitFor();
    await keep(page, 'question');
    await page.getByRole('button', { name: /Keep it/ }).click();
    await page.getByText('What about the old index?').waitFor({ state: 'detached' });
    const ended = await ask(`/v1/calls/${callId}?wait=5000`);
    expect(ended.body.result.output.content).toMatchObject({ state: 'answered', answer: 'keep' });
    await page.getByRole('link', { name: 'Sessions' }).click();
    await page.getByRole('link', { name: 'trip' }).click();
    await page.getByText('The old index is 40 GB.').waitFor();
    await page.getByRole('link', { name: 'request_user_input' }).waitFor();
  });

  test('the second half of a double click answers no other question', async () => {
    const { server, call, ask } = await rig();
    const page = await openPage(server.url);
    const options = ['Yes', 'No'].map((label) => ({ label, value: label }));
    for (const question of ['Delete the old index?', 'Delete the backup?']) {
      await call('request_user_input', { question, options }, 0);
      await page.getByText(question).waitFor();
    }
    const said = await clickOnTheNext(page, '.questions .question', '.questions .options button');
    await page.getByRole('button', { name: 'Yes' }).first().click();
    expect(await said()).toContain('Nothing was answered');
    expect((await ask('/v1/questions')).body.questions).toMatchObject([{ text: 'Delete the backup?' }]);
  });

  test('a question that another person answers stays while one types an answer, and says so', async () => {
    const { server, call, ask } = await rig();
    const page = await openPage(server.url);
    await call('request_user_input', { question: 'Which index?' }, 0);
    await page.getByLabel('Answer').fill('the ol');
    const [{ id }] = (await ask('/v1/questions')).body.questions;
    expect((await ask(`/v1/questions/${id}`, { method: 'POST', json: { answer: 'none' } })).status).toBe(200);
    await page.getByText('This question waits no more').waitFor();
    await page.keyboard.type('d one');
    expect(await page.getByLabel('Answer').inputValue()).toBe('the old one');
    await page.keyboard.press('Escape');
    await page.getByText('Which index?').waitFor({ state: 'detached' });
  });

  test('a tool is disabled and enabled again; the layer is turned off and on; nothing happens without the question', async () => {
    const { server, call, ask } = await rig();
    const page = await openPage(server.url, { viewport: { width: 1180, height: 760 } });
    await page.goto(`${server.url}/#tools`);
    await row(page, 'get_weather').getByRole('button', { name: 'Disable' }).click();
    await page.getByRole('button', { name: 'Keep it as it is' }).click();
    expect((await call('get_weather', { city: 'Rome' })).status).toBe('success');
    await row(page, 'get_weather').getByRole('button', { name: 'Disable' }).click();
    await page.getByRole('button', { name: 'Disable the tool' }).click();
    await row(page, 'get_weather').getByText('disabled').waitFor();
    expect(
      (
        await ask('/v1/calls', {
          method: 'POST',
          json: { tool: 'get_weather', session: 'trip', params: { city: 'Bern' } },
        })
      ).body,
    ).not.toMatchObject({ status: 'success' });
    await row(page, 'get_weather').getByRole('button', { name: 'Enable' }).click();
    await page.getByRole('button', { name: 'Enable the tool' }).click();
    await row(page, 'get_weather').getByText('enabled').waitFor();
    await page.getByRole('link', { name: 'Ledger' }).click();
    await page.getByRole('button', { name: 'Turn off' }).click();
    await page.getByLabel('Why (optional)').fill('rollout of 2.0');
    await page.getByRole('button', { name: 'Turn it off' }).click();
    await page.getByRole('button', { name: 'Turn on' }).waitFor();
    await page.getByText('rollout of 2.0').waitFor();
    await page.getByRole('button', { name: 'Turn on' }).click();
    await page.getByRole('button', { name: 'Turn it on' }).click();
    await page.getByRole('button', { name: 'Turn off' }).waitFor();
    await page.getByRole('button', { name: 'Forget ended calls' }).click();
    await page.getByRole('button', { name: 'Forget them' }).click();
    await page.getByText(/\d+ calls? forgotten/).waitFor();
  });

  test('shows schedules with their next times, and pauses one, lets it run and removes it', async () => {
    const { server, ask } = await rig();
    await ask('/v1/sessions', { method: 'POST', json: { sessionKey: 'ops' } });
    const json = {
      tool: 'get_weather',
      params: { city: 'Paris' },
      session: 'ops',
      cron: '0 2 * * *',
      timezone: 'Europe/Berlin',
    };
    await ask('/v1/schedules/nightly', { method: 'PUT', json });
    const page = await openPage(server.url);
    await page.getByRole('link', { name: 'Schedules' }).click();
    await row(page, 'nightly').getByText('0 2 * * * (Europe/Berlin)').waitFor();
    await page.getByRole('link', { name: 'nightly' }).click();
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByLabel('Why').fill('holidays');
    await page.getByRole('button', { name: 'Pause it' }).click();
    await page.getByText(/by local operator: holidays/).waitFor();
    await page.getByRole('button', { name: 'Run now' }).click();
    await page.getByRole('button', { name: 'Run it' }).click();
    await page.getByRole('table', { name: 'Occurrences' }).getByText('run', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Remove' }).click();
    await page.getByRole('button', { name: 'Remove it' }).click();
    await page.getByText('There is no schedule.').waitFor();
  });

  test('shows a plan with its nodes in layers', async () => {
    const { server, ask } = await rig();
    const paris = { tool: 'get_weather', params: { city: 'Paris' } };
    const nodes = { first: paris, second: { ...paris, after: ['first'] }, third: { ...paris, after: ['first'] } };
    const { body } = await ask('/v1/plans', { method: 'POST', json: { session: 'trip', nodes } });
    const page = await openPage(server.url);
    await page.getByRole('link', { name: 'Plans' }).click();
    await row(page, body.planId).getByText('3 of 3').waitFor();
    await page.getByRole('link', { name: body.planId }).click();
    const layers = page.getByRole('list', { name: 'Nodes in layers' }).locator('> li');
    await layers.nth(1).getByText('third').waitFor();
    expect(await layers.count()).toBe(2);
    await row(page, 'second').getByText('success').waitFor();
    await row(page, 'second').getByText('Paris').waitFor();
    expect(await page.getByRole('button', { name: 'Cancel' }).count()).toBe(0);
  });

  test('a question that is open when the operator leaves its section goes with it', async () => {
    const { server } = await rig();
    const page = await openPage(server.url);
    await page.goto(`${server.url}/#tools`);
    await row(page, 'get_weather').waitFor();
    await page.getByRole('link', { name: 'Fleet' }).click();
    await page.getByRole('button', { name: 'Drain' }).click();
    await page.getByRole('button', { name: 'Keep it as it is' }).waitFor();
    await page.goBack();
    await row(page, 'get_weather').waitFor();
    expect(await page.getByRole('dialog').count()).toBe(0);
  });

  test('a link to what is not there says so where the thing would stand; skipping to the content stays in its section', async () => {
    const { server } = await rig();
    const page = await openPage(server.url);
    await page.goto(`${server.url}/#calls/%`);
    await page.getByText('There is no call "%", or its record has expired.').waitFor();
    await page.goto(`${server.url}/#calls/gone`);
    await page.getByText('There is no call "gone", or its record has expired.').waitFor();
    expect(await page.getByText('Loading the call…').count()).toBe(0);
    await page.goto(`${server.url}/#sessions/gone`);
    await page.getByRole('main').getByText('There is no session "gone".').waitFor();
    await page.getByRole('main').getByRole('link', { name: 'Sessions' }).click();
    await row(page, 'trip').getByRole('link', { name: 'trip' }).click();
    await page.getByRole('heading', { name: 'trip' }).waitFor();
    await page.getByText('Skip to the content').focus();
    await page.keyboard.press('Enter');
    expect(await page.evaluate('[location.hash, document.activeElement.id]')).toEqual(['#sessions/trip', 'main']);
    await page.getByRole('heading', { name: 'trip' }).waitFor();
  });

  test('a session shows its budget, and what is spent of it', async () => {
    const { server, ask } = await rig();
    const budget = { calls: 200, timeMs: 90_000, perTurn: { calls: 20 } };
    await ask('/v1/sessions', { method: 'POST', json: { sessionKey: 'bounded', actorId: 'ada', budget } });
    await ask('/v1/calls?wait=5000', {
      method: 'POST',
      json: { tool: 'get_weather', session: 'bounded', params: { city: 'Paris' } },
    });
    const page = await openPage(server.url);
    await page.goto(`${server.url}/#sessions/bounded`);
    await page.getByText(/^1 of 200 calls, [\d.]+ s of 90 s$/).waitFor();
    await page.getByText('20 calls', { exact: true }).waitFor();
  });

  test('long words of tools and sessions do not make the page wider than its window', async () => {
    const word = 'w'.repeat(120);
    const wordy = defineTool({
      name: 'wordy',
      version: '1.0.0',
      description: word.repeat(20),
      tier: 'read-only',
      input: z.object({}),
      run: () => ({ output: word }),
    });
    const { server, ask } = await startRig({ tools: [wordy] });
    await ask('/v1/sessions', { method: 'POST', json: { sessionKey: word, actorId: 'ada' } });
    const page = await openPage(server.url, { viewport: { width: 390, height: 780 } });
    for (const partition of ['tools/tools.wordy', `sessions/${word}`]) {
      await page.goto(`${server.url}/#${partition}`);
      await page.getByRole('heading', { name: /^w{120}|^wordy/ }).waitFor();
      expect(await widthOf(page), partition).toBeLessThanOrEqual(390);
    }
  });

  test('every section has room on a phone, in the dark; when the server is away the page says so', async () => {
    const { server, call } = await rig();
    await call('get_weather', { city: 'Paris' });
    await call('charge_card', { amount: 12 });
    const page = await openPage(server.url, { viewport: { width: 390, height: 780 }, colorScheme: 'dark' });
    for (const section of ['Approvals', 'Calls', 'Fleet', 'Circuits', 'Ledger', 'Tools', 'Sessions', 'Schedules']) {
      await page.getByRole('link', { name: section }).click();
      await page.getByRole('heading', { name: section, level: 2 }).waitFor();
      await page.locator('#live', { hasText: 'Live' }).waitFor();
      expect(await widthOf(page), section).toBeLessThanOrEqual(390);
      for (const head of await page.locator('th').all())
        await expect(head.getAttribute('aria-label').then((label) => label ?? head.textContent())).resolves.not.toBe(
          '',
        );
      if (section === 'Calls') {
        await page.getByRole('link', { name: 'charge_card' }).waitFor();
        await keep(page, 'calls-phone');
      }
    }
    await page
      .context()
      .route('**/v1/**', (route) =>
        route.fulfill({ status: 503, json: { error: { code: 'BACKEND_UNAVAILABLE', message: 'Redis is away.' } } }),
      );
    await page.getByText('Reconnecting').waitFor();
    await page.context().unroute('**/v1/**');
    await eventually(async () => (await page.locator('#live').innerText()) === 'Live', {
      what: 'the page to be live again',
    });
  });
});
