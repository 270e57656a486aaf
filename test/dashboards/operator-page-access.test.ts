/** Tokens on the operator’s page, and what it says of a server that does not answer. */
import { expect, test } from 'vitest';
import { eventually } from '../helpers/signal.ts';
import { describeInBrowser, openPage } from './browser.ts';
import { rig, row } from './operator-rig.ts';

describeInBrowser('the operator’s page in Chromium', () => {
  test('a token of a role sees what it may see and do; a wrong one is refused; signing out forgets it', async () => {
    const apiTokens = [
      { token: 'agent-secret', role: 'agent' },
      { token: 'operator-secret', role: 'operator' },
    ];
    const { server } = await rig({ apiTokens }, 'agent-secret');
    const page = await openPage(server.url);
    const sections = () => page.getByRole('navigation').getByRole('link').allInnerTexts();
    await page.getByLabel('API token').fill('guessed-secret');
    await page.keyboard.press('Enter');
    await page.getByText('The server does not know this token.').waitFor();
    // As it is copied from a text; no header can carry it.
    await page.getByLabel('API token').fill('agent-secret…');
    await page.keyboard.press('Enter');
    await eventually(async () => (await page.getByLabel('API token').inputValue()) === '', {
      what: 'the next question',
    });
    await page.getByText('The server does not know this token.').waitFor();
    await page.getByLabel('API token').fill('agent-secret');
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'Tools' }).click();
    await row(page, 'get_weather').waitFor();
    expect((await sections()).map((text) => text.trim())).toEqual(['Calls', 'Tools', 'Sessions', 'Schedules', 'Plans']);
    expect(await page.getByRole('button', { name: 'Disable' }).count()).toBe(0);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('API token').fill('operator-secret');
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'Fleet' }).click();
    await page.getByRole('button', { name: 'Drain' }).waitFor();
    await page.getByRole('link', { name: 'Tools' }).click();
    await row(page, 'get_weather').waitFor();
    // An admin's, not an operator's.
    expect(await page.getByRole('button', { name: 'Disable' }).count()).toBe(0);
  });

  test('a token that is refused later is asked for once more, and with another one the page is live at once', async () => {
    const apiTokens = [
      { token: 'first-secret', role: 'operator' },
      { token: 'second-secret', role: 'operator' },
    ];
    const { server } = await rig({ apiTokens }, 'first-secret');
    const page = await openPage(server.url);
    await page.getByLabel('API token').fill('first-secret');
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'Fleet' }).click();
    await page.getByRole('button', { name: 'Drain' }).waitFor();
    await page.route('**/v1/**', (route) =>
      route.request().headers()['authorization'] === 'Bearer first-secret'
        ? route.fulfill({ status: 401, json: { error: { code: 'UNAUTHENTICATED', message: 'revoked' } } })
        : route.continue(),
    );
    await page.getByText('The server does not know this token.').waitFor();
    await page.evaluate(`new MutationObserver(() => (document.body.dataset.states += document.getElementById('live').textContent))
      .observe(document.getElementById('live'), { childList: true })`);
    const answered = page.waitForResponse((response) => response.ok() && response.url().includes('/v1/workers'));
    await page.getByLabel('API token').fill('second-secret');
    await page.keyboard.press('Enter');
    await answered;
    await page.getByText('Live', { exact: true }).waitFor();
    expect(await page.evaluate('document.body.dataset.states ?? ""')).not.toContain('Refused');
  });

  test('a server that stands still is not called live', { tags: 'slow' }, async () => {
    const { server } = await rig();
    const page = await openPage(server.url);
    const live = page.locator('#live');
    await live.filter({ hasText: 'Live' }).waitFor();
    await page.context().route('**/v1/**', () => {});
    await live.filter({ hasText: 'Reconnecting' }).waitFor({ timeout: 60_000 });
    await page.context().unroute('**/v1/**');
    await live.filter({ hasText: 'Live' }).waitFor();
  });

  test('a page of which only a part is answered is not called live', { tags: 'slow' }, async () => {
    const { server } = await rig();
    const page = await openPage(server.url);
    await page.goto(`${server.url}/#sessions/trip`);
    await page.getByText('It made no call that is remembered.').waitFor();
    const away = { error: { code: 'BACKEND_UNAVAILABLE', message: 'Redis is away.' } };
    await page.context().route('**/v1/calls?**', (route) => route.fulfill({ status: 503, json: away }));
    const live = page.locator('#live');
    await live.filter({ hasText: 'Reconnecting' }).waitFor();
    for (let answers = 0; answers < 3; answers += 1)
      await page.waitForResponse((answer) => answer.url().endsWith('/v1/sessions/trip') && answer.ok());
    expect(await live.innerText()).toBe('Reconnecting');
    await page.context().unroute('**/v1/calls?**');
    await live.filter({ hasText: 'Live' }).waitFor();
  });
});
