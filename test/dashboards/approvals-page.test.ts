import { mkdirSync } from 'node:fs';
import type { Route } from 'playwright-core';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import { eventually, signal } from '../helpers/signal.ts';
import { startRig } from '../producer/http/rig.ts';
import { clickOnTheNext, describeInBrowser, openPage } from './browser.ts';

const deploy = defineTool({
  name: 'deploy',
  version: '2.1.0',
  description: 'Deploys a service.',
  tier: 'elevated',
  effects: 'once',
  annotations: { destructiveHint: true, openWorldHint: true },
  input: z.object({ service: z.string(), replicas: z.number().int().max(9), justification: z.string().optional() }),
  preview: ({ service, replicas }) => ({
    summary: `Deploy ${service} with ${replicas} replicas`,
    details: `--- production/${service}.yaml\n+++ production/${service}.yaml\n@@ -1,3 +1,3 @@\n service: ${service}\n-replicas: 2\n+replicas: ${replicas}`,
  }),
  run: (params) => ({ output: params }),
});

/** `PAWL_IMAGES=docs/images` keeps what the page looked like. */
const images = process.env['PAWL_IMAGES'];

async function rig(settings = {}) {
  const started = await startRig({
    tools: [deploy],
    tiers: ['elevated'],
    settings: { workspaceRoot: '/srv/release', ...settings },
  });
  const token = 'apiTokens' in settings ? 'agent-secret' : undefined;
  const headers = token === undefined ? {} : { token };
  const session = { kind: 'main', sessionKey: 'release', actorId: 'release-agent', channel: { kind: 'operator' } };
  expect((await started.ask('/v1/sessions', { method: 'POST', json: session, ...headers })).status).toBe(201);
  const call = async (params: object) => {
    const json = { tool: 'deploy', session: 'release', params };
    const { body } = await started.call(json, { wait: 0, ...headers });
    return (body as { callId: string }).callId;
  };
  const stateOf = async (callId: string) => (await started.ask(`/v1/calls/${callId}?wait=5000`, headers)).body;
  return { ...started, call, stateOf };
}

describeInBrowser('approvals on the operator’s page in Chromium', () => {
  test('calls appear within a second: the fastest of three does, whatever else the machine does', async () => {
    const { server, call } = await rig();
    const page = await openPage(server.url);
    await page.getByText('Nothing waits for a decision.').waitFor();
    const tookMs: number[] = [];
    for (const replicas of [1, 2, 3]) {
      const askedAtMs = performance.now();
      await call({ service: 'shop', replicas });
      await page.getByRole('button', { name: new RegExp(`Deploy shop with ${replicas} replicas`) }).waitFor();
      tookMs.push(performance.now() - askedAtMs);
    }
    expect(Math.min(...tookMs)).toBeLessThan(1_000);
  });

  test('a long preview leaves room for the other calls, and is whole beside the list', async () => {
    const { server, call } = await rig();
    const service = 'shop'.repeat(100);
    await call({ service, replicas: 1 });
    const page = await openPage(server.url);
    const entry = page.getByRole('button', { name: /Deploy shop/ });
    await entry.waitFor();
    expect((await entry.boundingBox())?.height).toBeLessThan(150);
    await page.getByRole('heading', { name: `Deploy ${service} with 1 replicas` }).waitFor();
  });

  test('keyboard alone reads, edits and approves it', async () => {
    const { server, call, stateOf } = await rig();
    const page = await openPage(server.url);
    await page.getByText('Nothing waits for a decision.').waitFor();
    const callId = await call({ service: 'shop', replicas: 4, justification: 'Black Friday' });
    const entry = page.getByRole('button', { name: /Deploy shop with 4 replicas/ });
    await entry.waitFor();
    await page.getByText('Black Friday').first().waitFor();
    await page.getByText('tools.deploy, asked by release-agent').waitFor();
    await page.locator('ins', { hasText: '+replicas: 4' }).waitFor();
    if (images !== undefined) {
      mkdirSync(images, { recursive: true });
      await page.screenshot({ path: `${images}/approvals.png` });
    }
    await page.keyboard.press('e');
    await page.keyboard.press('ControlOrMeta+a');
    await page.keyboard.type('{"service":"shop","replicas":99}');
    await page.keyboard.press('Escape');
    await page.keyboard.press('a');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').filter({ hasText: 'replicas' }).waitFor();
    await page.keyboard.press('e');
    await page.keyboard.press('ControlOrMeta+a');
    await page.keyboard.type('{"service":"shop","replicas":3}');
    await page.keyboard.press('Escape');
    await page.keyboard.press('a');
    await page.keyboard.press('Enter');
    expect(await stateOf(callId)).toMatchObject({ state: 'done', result: { output: { content: { replicas: 3 } } } });
    await page.getByText('Nothing waits for a decision.').waitFor();
  });

  test.each(['', '<h1>Sign in to the network</h1>', '{"id":"e0.'])(
    'the answer of a proxy, %j, is neither a decision nor a list',
    async (body) => {
      const { server, call, ask } = await rig();
      const page = await openPage(server.url);
      await call({ service: 'shop', replicas: 4 });
      const approve = page.getByRole('button', { name: 'Approve' });
      await approve.waitFor();
      const proxied = (route: Route) => route.fulfill({ status: 200, contentType: 'text/html', body });
      await page.route('**/v1/approvals/*', proxied);
      await approve.click();
      await page.getByRole('alert').filter({ hasText: 'The server cannot be reached' }).waitFor();
      expect(await page.locator('#status').innerText()).toBe('');
      expect((await ask('/v1/approvals?state=pending')).body.approvals).toHaveLength(1);
      await page.route('**/v1/**', proxied);
      await page.locator('#live', { hasText: 'Reconnecting' }).waitFor();
      expect(await page.locator('#status').innerText()).toBe('');
    },
  );

  test('parameters that lists cut are shown and edited whole', async () => {
    const { server, call, stateOf } = await rig();
    const page = await openPage(server.url);
    const justification = `${'because '.repeat(40_000)}of the end`;
    const callId = await call({ service: 'shop', replicas: 4, justification });
    await page.getByRole('heading', { name: 'Deploy shop with 4 replicas' }).waitFor();
    await page.getByText('Edit the parameters').click();
    const field = page.getByLabel('Parameters to run with');
    const shown = JSON.parse(await field.inputValue()) as { justification: string };
    expect(shown.justification).toBe(justification);
    await field.fill(JSON.stringify({ ...shown, replicas: 3 }));
    await page.getByRole('button', { name: 'Approve' }).click();
    const { content } = (await stateOf(callId)).result.output;
    expect(content).toEqual({ service: 'shop', replicas: 3, justification });
  });

  test('what one has edited counts when the field is closed, to the last digit, and is not remembered', async () => {
    const { server, call, stateOf } = await rig();
    const page = await openPage(server.url);
    const callId = await call({ service: 'shop', replicas: 4 });
    await page.getByText('Edit the parameters').click();
    const field = page.getByLabel('Parameters to run with');
    const remember = page.getByRole('checkbox');
    await remember.check();
    for (const replicas of ['9007199254740993', '1e400']) {
      await field.fill(`{"service":"shop","replicas":${replicas}}`);
      await page.getByRole('button', { name: 'Approve' }).click();
      await page.getByRole('alert').filter({ hasText: replicas }).waitFor();
    }
    expect([await remember.isChecked(), await remember.isDisabled()]).toEqual([false, true]);
    await field.fill('{"service":"shop","replicas":3}');
    await page.getByText('Edited: the call runs with these parameters').click();
    await page.getByRole('button', { name: 'Approve' }).click();
    expect(await stateOf(callId)).toMatchObject({ state: 'done', result: { output: { content: { replicas: 3 } } } });
  });

  test('the time that is left is the server’s, whatever the clock of the operator’s machine says', async () => {
    const { server, call } = await rig();
    await call({ service: 'shop', replicas: 4 });
    const page = await openPage(server.url);
    const left = page.locator('.detail [data-expires]');
    await left.filter({ hasText: /^\d+ min/ }).waitFor();
    const shown = Number.parseInt(await left.innerText(), 10);
    for (const hours of [-3, 3]) {
      await page.clock.setSystemTime(Date.now() + hours * 3_600_000);
      await eventually(async () => Math.abs(Number.parseInt(await left.innerText(), 10) - shown) <= 1, {
        what: 'the time that is left',
      });
      await page.reload();
      await left.filter({ hasText: /^\d+ min/ }).waitFor();
      expect(Math.abs(Number.parseInt(await left.innerText(), 10) - shown)).toBeLessThanOrEqual(1);
    }
  });

  test('deny with a reason, by keyboard; what was decided before is shown with the next one', async () => {
    const { server, call, stateOf } = await rig();
    const page = await openPage(server.url);
    const first = await call({ service: 'shop', replicas: 1 });
    await page.getByRole('button', { name: /with 1 replicas/ }).waitFor();
    await call({ service: 'mail', replicas: 2 });
    await page.getByRole('button', { name: /Deploy mail/ }).waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    await page.getByRole('heading', { name: 'Deploy shop with 1 replicas' }).waitFor();
    await page.keyboard.press('d');
    await page.keyboard.type('not on a Friday');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    expect((await stateOf(first)).result.error.message).toContain('denied the call: not on a Friday');
    await page.getByText(/denied by local operator: Deploy shop/).waitFor();
  });

  test('the second half of a double click decides on nothing; a click on what one has seen does', async () => {
    const { server, call, ask } = await rig();
    const pending = async () => (await ask('/v1/approvals?state=pending')).body.approvals.length;
    const page = await openPage(server.url);
    for (const replicas of [1, 2]) {
      await call({ service: 'shop', replicas });
      await page.getByRole('button', { name: new RegExp(`with ${replicas} replicas`) }).waitFor();
    }
    const said = await clickOnTheNext(page, '.detail h3', '.approve');
    const approve = page.getByRole('button', { name: 'Approve' });
    await approve.click();
    expect(await said()).toContain('Nothing was decided');
    expect(await pending()).toBe(1);
    await eventually(
      async () => {
        // A click before this one may have been taken, and the button be gone.
        await approve.click({ timeout: 1_000 }).catch(() => undefined);
        return (await pending()) === 0;
      },
      { what: 'the approval of the second call' },
    );
  });

  test('what another person decides stays with what became of it, and what one types meanwhile decides nothing else', async () => {
    const { server, call, ask } = await rig();
    const pending = async () => (await ask('/v1/approvals?state=pending')).body.approvals;
    const page = await openPage(server.url);
    await call({ service: 'shop', replicas: 1 });
    await page.getByRole('heading', { name: 'Deploy shop with 1 replicas' }).waitFor();
    await call({ service: 'mail', replicas: 2 });
    await page.getByRole('button', { name: /Deploy mail/ }).waitFor();
    await page.keyboard.press('d');
    await page.keyboard.type('not on');
    const { id, digest } = (await pending()).find(
      ({ params }: { params: object }) => 'service' in params && params.service === 'shop',
    );
    const json = { decision: 'deny', digest, reason: 'too late' };
    expect((await ask(`/v1/approvals/${id}`, { method: 'POST', json })).status).toBe(200);
    await page.getByRole('button', { name: /Deploy shop/ }).waitFor({ state: 'detached' });
    await page.keyboard.type(' a day like this');
    expect(await pending()).toHaveLength(1);
    await page.getByRole('alert').getByText('It was denied by local operator: too late.').waitFor();
    await page.getByRole('heading', { name: 'Deploy shop with 1 replicas' }).waitFor();
    expect(await page.getByLabel('Reason').inputValue()).toBe('not on a day like this');
    expect(await page.getByRole('button', { name: 'Approve' }).isDisabled()).toBe(true);
    expect(await pending()).toHaveLength(1);
    await page.keyboard.press('Escape');
    await page.keyboard.press('j');
    await page.getByRole('heading', { name: 'Deploy mail with 2 replicas' }).waitFor();
    await page.getByRole('button', { name: 'Approve' }).click();
    await page.getByText('Nothing waits for a decision.').waitFor();
  });

  test('the second to decide learns who was first', async () => {
    const { server, call, ask } = await rig();
    const page = await openPage(server.url);
    await call({ service: 'shop', replicas: 1 });
    await page.getByRole('heading', { name: 'Deploy shop with 1 replicas' }).waitFor();
    await page.route('**/v1/approvals/*', async (route) => {
      if (route.request().method() === 'POST') {
        const [{ id, digest }] = (await ask('/v1/approvals?state=pending')).body.approvals;
        await ask(`/v1/approvals/${id}`, { method: 'POST', json: { decision: 'deny', digest } });
      }
      await route.continue();
    });
    await page.getByRole('button', { name: 'Approve' }).click();
    await page.getByRole('alert').getByText('It was denied by local operator.').waitFor();
    await page.getByRole('heading', { name: 'Deploy shop with 1 replicas' }).waitFor();
  });

  test('while a decision is on its way, a second one is refused with a word', async () => {
    const { server, call, stateOf } = await rig();
    const page = await openPage(server.url);
    const callId = await call({ service: 'shop', replicas: 1 });
    const sent = signal();
    const released = signal();
    await page.route('**/v1/approvals/*', async (route) => {
      if (route.request().method() === 'POST') {
        sent.fire();
        await released.promise;
      }
      await route.continue();
    });
    await page.getByRole('button', { name: 'Approve' }).click();
    await sent.promise;
    await page.getByRole('button', { name: 'Deny' }).click();
    await page.getByText('A decision about this call is on its way already').waitFor();
    released.fire();
    expect((await stateOf(callId)).state).toBe('done');
  });

  test('an address names one call: from its story to its approval and back, also when it has been decided', async () => {
    const { server, call, stateOf } = await rig();
    const page = await openPage(server.url);
    const callId = await call({ service: 'shop', replicas: 1 });
    await page.getByRole('heading', { name: 'Deploy shop with 1 replicas' }).waitFor();
    await call({ service: 'mail', replicas: 2 });
    await page.getByRole('button', { name: /Deploy mail/ }).waitFor();
    await page.getByRole('button', { name: /Deploy shop/ }).click();
    const address = page.url();
    expect(address).toContain('#approvals/');
    await page.getByRole('link', { name: callId }).click();
    await page.getByRole('link', { name: 'see Approvals' }).click();
    await page.getByRole('heading', { name: 'Deploy shop with 1 replicas' }).waitFor();
    await page.goBack();
    await page.goBack();
    await page.getByRole('heading', { name: 'Deploy shop with 1 replicas' }).waitFor();
    await page.getByRole('button', { name: 'Approve' }).click();
    expect((await stateOf(callId)).state).toBe('done');
    await page.getByRole('heading', { name: 'Deploy mail with 2 replicas' }).waitFor();
    expect(page.url()).toMatch(/#approvals$/);
    await page.goto(address);
    await page.getByRole('alert').getByText('It was approved by local operator.').waitFor();
    await page.getByRole('heading', { name: 'Deploy shop with 1 replicas' }).waitFor();
    await page.goto(`${server.url}/#approvals/none`);
    await page.getByText('There is no approval "none"').waitFor();
  });

  test('a session shows what is remembered of its approvals, and it can be taken back there', async () => {
    const { server, ask, call, stateOf, pawl } = await rig();
    const callId = await call({ service: 'shop', replicas: 4 });
    const { id, digest } = (await ask(`/v1/approvals/${callId}`)).body;
    await ask(`/v1/approvals/${id}`, { method: 'POST', json: { decision: 'approve', digest, remember: true } });
    await stateOf(callId);
    const page = await openPage(server.url);
    await page.goto(`${server.url}/#sessions/release`);
    const table = page.getByRole('table', { name: 'Remembered approvals' });
    await table.getByText('the same parameters').waitFor();
    await table.getByRole('button', { name: 'Forget' }).click();
    await page.getByRole('button', { name: 'Forget it' }).click();
    await page.getByText('Each call that needs an approval is asked about.').waitFor();
    expect(await pawl.approvals.remembered('release')).toEqual([]);
  });

  test('what is shown of a hundred and more is not called all of them', { tags: 'slow' }, async () => {
    const { server, call } = await rig();
    const page = await openPage(server.url);
    for (let replicas = -99; replicas <= 1; replicas += 1) await call({ service: 'shop', replicas });
    await page.locator('nav .badge').getByText('100+', { exact: true }).waitFor();
    await page.getByText('more may wait').waitFor();
    expect(await page.title()).toBe('(100+) Pawl');
  });

  test('characters that deceive are written out, markup is text, and a phone in the dark has room for it', async () => {
    const { server, call } = await rig();
    const page = await openPage(server.url, { viewport: { width: 390, height: 780 }, colorScheme: 'dark' });
    await call({ service: '<img src=x onerror=alert(1)> \u202egnp.exe', replicas: 2 });
    await page.getByRole('heading', { name: /<img src=x onerror=alert\(1\)> \\u\{202E\}gnp\.exe/ }).waitFor();
    expect(await page.locator('img').count()).toBe(0);
    // Text, because the types of a browser are not those of the tests.
    const { width, background } = (await page.evaluate(`({
      width: document.documentElement.scrollWidth,
      background: getComputedStyle(document.body).backgroundColor,
    })`)) as { width: number; background: string };
    expect(width).toBeLessThanOrEqual(390);
    expect(background).toBe('rgb(13, 17, 23)');
    if (images !== undefined) await page.screenshot({ path: `${images}/approvals-phone.png` });
  });

  test('with tokens the page asks for one, and an approver’s will do', async () => {
    const apiTokens = [
      { token: 'agent-secret', role: 'agent' },
      { token: 'approver-secret', role: 'approver' },
    ];
    const { server, call, stateOf } = await rig({ apiTokens });
    const callId = await call({ service: 'shop', replicas: 4 });
    const page = await openPage(server.url);
    await page.getByLabel('API token').fill('approver-secret');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: /Deploy shop/ }).waitFor();
    await page.getByRole('button', { name: 'Approve' }).click();
    expect((await stateOf(callId)).state).toBe('done');
  });
});
