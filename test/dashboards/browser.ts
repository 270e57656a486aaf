/** A real Chromium for tests of pages; tests that need one are skipped, saying so, where there is none. */
import { existsSync } from 'node:fs';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { afterAll, describe, onTestFinished } from 'vitest';

const EXECUTABLE = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find((path) =>
  existsSync(path),
);

let launched: Promise<Browser> | undefined;

/** Tests of a page, which share a browser and are skipped where there is none. */
export function describeInBrowser(name: string, tests: () => void): void {
  if (EXECUTABLE === undefined) process.stdout.write(`skipped: ${name}, because there is no Chromium\n`);
  describe.skipIf(EXECUTABLE === undefined)(name, () => {
    afterAll(async () => {
      await (await launched)?.close();
      launched = undefined;
    });
    tests();
  });
}

/** One for all tests of a file: each has a context of its own. */
function browser(): Promise<Browser> {
  launched ??= chromium.launch({
    executablePath: EXECUTABLE ?? '',
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
  return launched;
}

/** Made inside a test; ends with it. Whatever the page says on its console as an error fails the test. */
export async function openPage(url: string, options: BrowserContextOptions = {}): Promise<Page> {
  const context = await (await browser()).newContext({ viewport: { width: 1180, height: 1080 }, ...options });
  onTestFinished(() => context.close());
  const page = await context.newPage();
  const faults: string[] = [];
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('requestfailed', (request) => {
    // What a reload breaks off is no fault.
    if (request.failure()?.errorText !== 'net::ERR_ABORTED') faults.push(`${request.url()} failed`);
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:')) faults.push(`asked for ${request.url()}`);
  });
  onTestFinished(() => {
    if (faults.length > 0) throw new Error(`the page is at fault: ${faults.join('; ')}`);
  });
  await page.goto(`${url}/`);
  return page;
}

/**
 * The second press of a double click, as fast as a browser can be: it lands on `button` as soon as what is shown there, the text of
 * `what`, is another one. Answers what waits for it and gives what the page said at once: the answer to the first press may follow.
 */
export async function clickOnTheNext(page: Page, what: string, button: string): Promise<() => Promise<string>> {
  // Text, because the types of a browser are not those of the tests.
  await page.evaluate(`(() => {
    const shown = () => document.querySelector(${JSON.stringify(what)})?.textContent;
    const before = shown();
    const observer = new MutationObserver(() => {
      if (shown() === before || shown() === undefined) return;
      observer.disconnect();
      document.querySelector(${JSON.stringify(button)}).dispatchEvent(new MouseEvent('click', { detail: 2, bubbles: true }));
      document.body.dataset.said = document.getElementById('status').textContent;
    });
    observer.observe(document.getElementById('main'), { childList: true, subtree: true });
  })()`);
  return async () => String(await page.locator('body[data-said]').getAttribute('data-said'));
}
