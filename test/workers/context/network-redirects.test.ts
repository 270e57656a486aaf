import type { IncomingHttpHeaders, RequestListener } from 'node:http';
import { describe, expect, test } from 'vitest';
import { classify } from '../../../src/shared/errors/classify-error.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { openNetwork } from '../../../src/workers/context/network.ts';
import { bodyOf, closedPort, serve } from './loopback-server.ts';

const signal = new AbortController().signal;

describe('redirects', () => {
  test('each hop is checked again', async () => {
    const { url, host } = await serve((_request, response) => {
      response.writeHead(302, { location: 'http://169.254.169.254/latest/' }).end();
    });
    const fetch = openNetwork({ signal, allowedHosts: [host] });
    await expect(fetch(url)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    expect((await fetch(url, { redirect: 'manual' })).status).toBe(302);
    await expect(fetch(url, { redirect: 'error' })).rejects.toMatchObject({ code: 'HTTP_4XX' });
  });

  test('five are followed and a sixth is not', async () => {
    const { url, host } = await serve((request, response) => {
      const left = Number(request.url?.slice(1));
      if (left === 0) response.end('arrived');
      else response.writeHead(307, { location: `/${left - 1}` }).end();
    });
    const fetch = openNetwork({ signal, allowedHosts: [host] });
    const response = await fetch(`${url}/5`);
    expect([await response.text(), response.url, response.redirected]).toEqual(['arrived', `${url}/0`, true]);
    await expect(fetch(`${url}/6`)).rejects.toThrow('more than 5 times');
  });

  test('303 becomes GET, 307 sends the body again, and another origin gets no credentials', async () => {
    const seen: string[] = [];
    const listener: RequestListener = async (request, response) => {
      const { authorization = '-', cookie = '-' } = request.headers;
      seen.push([request.method, request.url, await bodyOf(request), authorization, cookie].join(' '));
      response.end();
    };
    const other = await serve(listener);
    const here = await serve(async (request, response) => {
      if (request.url === '/see') response.writeHead(303, { location: '/end' }).end();
      else if (request.url === '/again') response.writeHead(307, { location: `${other.url}/end` }).end();
      else await listener(request, response);
    });
    const fetch = openNetwork({ signal, allowedHosts: ['127.0.0.1'] });
    const init = { method: 'POST', body: 'text', headers: { authorization: 'secret', cookie: 'c=1' } };
    await fetch(`${here.url}/see`, init);
    await fetch(`${here.url}/again`, init);
    expect(seen).toEqual(['GET /end  secret c=1', 'POST /end text - -']);
  });
});

test.each([301, 302, 303, 307, 308])(
  'no header that could be a credential follows a redirect (%i) to another origin',
  async (status) => {
    const seen: IncomingHttpHeaders[] = [];
    const other = await serve((request, response) => {
      seen.push(request.headers);
      if (request.url === '/back') response.writeHead(status, { location: `${here.url}/end` }).end();
      else response.end();
    });
    const here = await serve((request, response) => {
      if (request.url === '/end') seen.push(request.headers);
      const location =
        request.url === '/inside' ? '/end' : request.url === '/end' ? undefined : `${other.url}${request.url}`;
      response.writeHead(location === undefined ? 200 : status, location === undefined ? {} : { location }).end();
    });
    const credentials = Object.fromEntries(
      [
        'authorization',
        'cookie',
        'proxy-authorization',
        'x-api-key',
        'x-auth-token',
        'api-key',
        'private-token',
        'x-whatever',
      ].map((name) => [name, 'secret']),
    );
    const fetch = openNetwork({ signal, allowedHosts: ['127.0.0.1'] });
    const headers = { ...credentials, accept: 'text/plain', 'accept-language': 'de', 'user-agent': 'mine' };
    for (const path of ['/out', '/back']) await fetch(`${here.url}${path}`, { headers });
    expect(seen).toHaveLength(3);
    for (const got of seen) {
      expect(JSON.stringify(got)).not.toContain('secret');
      expect(got).toMatchObject({ accept: 'text/plain', 'accept-language': 'de', 'user-agent': 'mine' });
    }
    await fetch(`${here.url}/inside`, { headers });
    expect(seen.at(-1)).toMatchObject(credentials);
  },
);

describe('a redirect that cannot be followed', () => {
  const elsewhere = [
    ['a refused connection', 'http://127.0.0.1:PORT/', 'CONNECTION_REFUSED', true],
    ['an unknown name', 'http://absent.test/', 'DNS_FAILED', true],
    ['a private address', 'http://169.254.169.254/', 'PERMISSION_DENIED', false],
    ['another protocol', 'ftp://example.com/', 'PERMISSION_DENIED', false],
  ] as const;

  /** A fetch that `status` redirects to the target. */
  async function redirecting(target: string, status: number) {
    const location = target.replace('PORT', String(await closedPort()));
    const { url } = await serve((_request, response) => response.writeHead(status, { location }).end());
    const resolve = async () => [];
    const call = new AbortController();
    return { url, call, fetch: openNetwork({ signal: call.signal, allowedHosts: ['127.0.0.1'], resolve }) };
  }

  test.each(elsewhere)('does not prove that a POST had no effect: %s', async (_what, target, code, retriable) => {
    for (const status of [301, 302, 303, 307]) {
      const { url, fetch } = await redirecting(target, status);
      const error = await fetch(url, { method: 'POST', body: 'pay' }).catch((thrown: unknown) => thrown);
      expect(classify(error)).toMatchObject({ code, retriable, nothingHappened: false });
    }
  });

  test.each(elsewhere)('and a GET has none: %s', async (_what, target, code) => {
    const { url, fetch } = await redirecting(target, 302);
    const error = await fetch(url).catch((thrown: unknown) => thrown);
    expect(classify(error)).toMatchObject({ code, nothingHappened: true });
  });

  test('an abort past it ends with the reason of the signal', async () => {
    const reason = new PawlError('CANCELLED');
    const silent = await serve(() => call.abort(reason));
    const { url, call, fetch } = await redirecting(silent.url, 307);
    await expect(fetch(url, { method: 'POST' })).rejects.toBe(reason);
  });
});
