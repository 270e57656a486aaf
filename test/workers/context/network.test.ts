import type { LookupAddress } from 'node:dns';
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, onTestFinished, test } from 'vitest';
import { isInDoubt } from '../../../src/shared/calls/call-state.ts';
import { classify } from '../../../src/shared/errors/classify-error.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { openNetwork } from '../../../src/workers/context/network.ts';
import { bodyOf, closedPort, serve } from './loopback-server.ts';

const signal = new AbortController().signal;

describe('private addresses are refused, however they are written', () => {
  const fetch = openNetwork({ signal });
  test.each([
    'http://127.0.0.1/',
    'http://127.1/',
    'http://2130706433/',
    'http://0x7f000001/',
    'http://0177.0.0.1/',
    'http://127.0.0.1./',
    'http://0/',
    'http://[::1]/',
    'http://[::]/',
    'http://[::ffff:127.0.0.1]/',
    'http://[::ffff:7f00:1]/',
    'http://[64:ff9b::7f00:1]/',
    'http://[2002:7f00:1::]/',
    'http://[fd00:ec2::254]/latest/meta-data/',
    'http://169.254.169.254/latest/meta-data/',
    'http://100.100.100.200/',
    'http://10.0.0.1:6379/',
    'https://192.168.1.1/',
    'http://localhost/',
    'http://localhost./',
    'http://LOCALHOST/',
    'http://any.localhost/',
    'http://①②⑦.0.0.1/',
    'file:///etc/passwd',
    'data:text/plain,x',
    'ftp://example.com/',
  ])('%s', async (url) => {
    await expect(fetch(url)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });

  test('credentials in a URL and text that is none are INVALID_PARAMS', async () => {
    for (const url of ['http://user:word@127.0.0.1/', 'nonsense', '']) {
      await expect(fetch(url)).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
    }
  });
});

describe('names', () => {
  const naming = (...addresses: readonly string[]) => {
    const asked: string[] = [];
    const resolve = async (hostname: string): Promise<readonly LookupAddress[]> => {
      asked.push(hostname);
      return addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
    };
    return { asked, resolve };
  };

  test('a name is refused when any of its addresses is private', async () => {
    const fetch = openNetwork({ signal, resolve: naming('8.8.8.8', '::ffff:10.0.0.1').resolve });
    await expect(fetch('http://mixed.test/')).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining('mixed.test, which is ::ffff:10.0.0.1'),
    });
  });

  test('a name is resolved once, and the address that was checked is the one connected to', async () => {
    const { host } = await serve((_request, response) => response.end('here'));
    const [, port = ''] = host.split(':');
    const { asked, resolve } = naming('127.0.0.1');
    const fetch = openNetwork({ signal, resolve, allowedHosts: [`Rebound.test:${port}`, 'Über.test'] });
    expect(await (await fetch(`http://rebound.test:${port}/`)).text()).toBe('here');
    expect(await (await fetch(`http://über.test:${port}/`)).text()).toBe('here');
    expect(asked).toEqual(['rebound.test', 'xn--ber-goa.test']);
  });

  test('a name that does not exist fails with Node’s error', async () => {
    const fetch = openNetwork({ signal, resolve: naming().resolve });
    await expect(fetch('http://absent.test/')).rejects.toMatchObject({ code: 'ENOTFOUND' });
  });

  test('policy allows a host, or a host with one port, and no other', async () => {
    const { url, host } = await serve((_request, response) => response.end('ok'));
    expect((await openNetwork({ signal, allowedHosts: ['127.0.0.1'] })(url)).status).toBe(200);
    expect((await openNetwork({ signal, allowedHosts: [host] })(url)).status).toBe(200);
    for (const allowedHosts of [['127.0.0.1:1'], ['127.0.0.2'], ['localhost'], ['']]) {
      await expect(openNetwork({ signal, allowedHosts })(url)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    }
  });
});

describe('as fetch', () => {
  test('method, headers, body, status and headers of the answer', async () => {
    const { url, host } = await serve(async (request, response) => {
      const got = { method: request.method, type: request.headers['content-type'], body: await bodyOf(request) };
      response.writeHead(201, { 'x-one': ['a', 'b'] }).end(JSON.stringify(got));
    });
    const fetch = openNetwork({ signal, allowedHosts: [host] });
    const response = await fetch(new URL(url), { method: 'PUT', body: new URLSearchParams({ a: '1' }) });
    expect(response).toBeInstanceOf(Response);
    expect(response.status).toBe(201);
    expect(response.headers.get('x-one')).toBe('a, b');
    expect(await response.json()).toEqual({
      method: 'PUT',
      type: 'application/x-www-form-urlencoded;charset=UTF-8',
      body: 'a=1',
    });
  });

  test('answers without a body', async () => {
    const { url, host } = await serve((_request, response) => response.writeHead(204).end());
    const fetch = openNetwork({ signal, allowedHosts: [host] });
    const response = await fetch(url);
    expect([response.status, response.body]).toEqual([204, null]);
    expect((await fetch(url, { method: 'HEAD' })).status).toBe(204);
  });

  test('compressed answers are read, and the cap counts decompressed bytes', async () => {
    const bomb = gzipSync(gzipSync(Buffer.alloc(100_000_000)));
    expect(bomb.length).toBeLessThan(2_000);
    const { url, host } = await serve((request, response) => {
      if (request.url === '/gzip') response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync('text'));
      else if (request.url === '/br')
        response.writeHead(200, { 'content-encoding': 'br' }).end(brotliCompressSync('text'));
      else if (request.url === '/zlib')
        response.writeHead(200, { 'content-encoding': 'deflate' }).end(deflateSync('text'));
      else if (request.url === '/raw')
        response.writeHead(200, { 'content-encoding': 'deflate' }).end(deflateRawSync('text'));
      else if (request.url === '/cut')
        response.writeHead(200, { 'content-encoding': 'deflate' }).end(deflateSync('a text').subarray(0, 9));
      else if (request.url === '/deep') response.writeHead(200, { 'content-encoding': 'gzip, gzip, gzip' }).end('x');
      else if (request.url === '/broken') response.writeHead(200, { 'content-encoding': 'gzip' }).end('no gzip');
      else response.writeHead(200, { 'content-encoding': 'gzip, gzip' }).end(bomb);
    });
    const fetch = openNetwork({ signal, allowedHosts: [host], maxResponseBytes: 1_000_000 });
    for (const path of ['gzip', 'br', 'zlib', 'raw'])
      expect(await (await fetch(`${url}/${path}`)).text(), path).toBe('text');
    for (const path of ['deep', 'broken'])
      await expect((await fetch(`${url}/${path}`)).text(), path).rejects.toMatchObject({ code: 'RESULT_INVALID' });
    await expect((await fetch(`${url}/cut`)).text()).rejects.toMatchObject({ code: 'CONNECTION_RESET' });
    await expect((await fetch(`${url}/bomb`)).text()).rejects.toMatchObject({ code: 'RESULT_TOO_LARGE' });
  });

  test('a refused connection keeps Node’s code', async () => {
    const fetch = openNetwork({ signal, allowedHosts: ['127.0.0.1'] });
    await expect(fetch(`http://127.0.0.1:${await closedPort()}`)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  test('abort of the call ends a request and a body, with the reason of the signal', async () => {
    let call = new AbortController();
    const { url, host } = await serve((request, response) => {
      if (request.url === '/body')
        response.write('first'); // and then nothing
      else call.abort(reason);
    });
    const reason = new PawlError('CANCELLED');
    for (const path of ['/head', '/body']) {
      call = new AbortController();
      const fetch = openNetwork({ signal: call.signal, allowedHosts: [host] });
      const answer = fetch(url + path).then((response) => {
        const text = response.text();
        call.abort(reason);
        return text;
      });
      await expect(answer).rejects.toBe(reason);
    }
  });
});

/** A fetch from a server that answers the first request with these bytes; `asked` are the requested paths. */
async function answeredWith(bytes: string, init: RequestInit = {}) {
  const asked: string[] = [];
  const server = createTcpServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', (request) => {
      asked.push(request.toString('latin1').split(' ')[1] ?? '');
      socket.write(asked.length === 1 ? bytes : 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
    });
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { result: openNetwork({ signal, allowedHosts: [host] })(`http://${host}/`, init), asked };
}

async function listen(onSocket: (socket: Socket) => unknown): Promise<string> {
  const sockets: Socket[] = [];
  const server = createTcpServer((socket) => {
    sockets.push(socket.on('error', () => undefined));
    onSocket(socket);
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe('odd answers', () => {
  test('an unrequested switch to another protocol ends the request', async () => {
    const { result } = await answeredWith('HTTP/1.1 101 Switch\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n');
    await expect(result).rejects.toMatchObject({ code: 'CONNECTION_RESET' });
  });

  test('a status that HTTP does not have is reported by its number', async () => {
    const { result } = await answeredWith('HTTP/1.1 999 Denied\r\ncontent-length: 0\r\n\r\n');
    await expect(result).rejects.toMatchObject({ code: 'HTTP_4XX', message: expect.stringContaining('999') });
  });

  test.each([
    ['999 Denied', 'HTTP_4XX'],
    ['302 Found\r\nlocation: http://[bad', 'HTTP_5XX'],
    ['303 See Other\r\nlocation: ftp://example.com/', 'PERMISSION_DENIED'],
  ])('an answer that cannot be used leaves open what a POST did, and a GET does nothing: %j', async (head, code) => {
    for (const method of ['POST', 'GET']) {
      const { result } = await answeredWith(`HTTP/1.1 ${head}\r\ncontent-length: 0\r\n\r\n`, { method });
      const failure = classify(await result.catch((thrown: unknown) => thrown));
      expect([failure.code, isInDoubt('once', failure)]).toEqual([code, method === 'POST']);
    }
  });

  test('a redirect to an address in UTF-8 is followed to that address', async () => {
    const { result, asked } = await answeredWith('HTTP/1.1 302 Found\r\nlocation: /café\r\ncontent-length: 0\r\n\r\n');
    await result;
    expect(asked).toEqual(['/', '/caf%C3%A9']);
  });

  test.each(['content-length: 0\r\n\r\n', 'transfer-encoding: chunked\r\n\r\n0\r\n\r\n'])(
    'an empty body is empty, whatever its declared encoding is: %j',
    async (end) => {
      const { result } = await answeredWith(`HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n${end}`);
      expect(await (await result).text()).toBe('');
    },
  );

  test.each<[string, (socket: Socket) => unknown, string]>([
    ['is reset', (socket) => socket.resetAndDestroy(), 'closed the connection without an answer'],
    ['is not TLS', (socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'), 'broke: wrong version number.'],
  ])('nothing was sent where a TLS connection %s before it is open', async (_which, refuse, reason) => {
    const host = await listen((socket) => socket.once('data', () => refuse(socket)));
    const sent = openNetwork({ signal, allowedHosts: [host] })(`https://${host}/`, { method: 'POST' });
    const failure = classify(await sent.catch((thrown: unknown) => thrown));
    expect(failure).toMatchObject({ code: 'UNREACHABLE', retriable: true, nothingHappened: true });
    expect(failure.message).toContain(reason);
  });

  test('nothing was sent where the call ends before its connection is open', async () => {
    const call = new AbortController();
    const host = await listen((socket) => socket.once('data', () => call.abort(new PawlError('TIMEOUT'))));
    const sent = openNetwork({ signal: call.signal, allowedHosts: [host] })(`https://${host}/`, { method: 'POST' });
    expect(classify(await sent.catch((thrown: unknown) => thrown))).toMatchObject({
      code: 'CONNECT_TIMEOUT',
      nothingHappened: true,
    });
  });

  test('the tool’s own signal ends a request with its own reason, also before the connection is open', async () => {
    const own = new AbortController();
    const reason = new Error('the user has changed their mind');
    const host = await listen((socket) => socket.once('data', () => own.abort(reason)));
    const fetch = openNetwork({ signal, allowedHosts: [host] });
    await expect(fetch(`https://${host}/`, { method: 'POST', signal: own.signal })).rejects.toBe(reason);
  });

  test('a body without a length that ends because its connection broke is not whole', async () => {
    const sockets: Socket[] = [];
    const host = await listen((socket) => {
      sockets.push(socket);
      socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\n\r\nhalf'));
    });
    const response = await openNetwork({ signal, allowedHosts: [host] })(`http://${host}/`);
    for (const socket of sockets) socket.resetAndDestroy();
    await expect(response.text()).rejects.toMatchObject({ code: 'CONNECTION_RESET' });
  });

  test.each([
    ['', 'CONNECTION_RESET', 'closed the connection without an answer'],
    ['SSH-2.0-OpenSSH_9\r\n', 'RESULT_INVALID', 'answers with something else than HTTP: Parse Error'],
    ['HTTP/1.1 200 OK\nx: y\n\n', 'RESULT_INVALID', 'answers with something else than HTTP: Parse Error'],
    ['HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf', 'CONNECTION_RESET', 'closed the connection before the end'],
    ['HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf', 'CONNECTION_RESET', 'before the end of its'],
  ])('an answer that breaks off, or is not HTTP, is reported with its host: %j', async (bytes, code, reason) => {
    const server = createTcpServer((socket) => socket.on('error', () => {}).once('data', () => socket.end(bytes)));
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
    onTestFinished(() => new Promise<void>((closed) => server.close(() => closed())));
    const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    const read = openNetwork({ signal, allowedHosts: [host] })(`http://${host}/`).then((response) => response.text());
    const error = await read.catch((reason: unknown) => reason);
    expect(classify(error)).toMatchObject({ code, message: expect.stringMatching(new RegExp(`^${host} .*${reason}`)) });
  });
});

test.each(['::1', '[::1]', '0:0:0:0:0:0:0:1', '[0::0001]', '::1 with a port', '[0:0::1] with a port'])(
  'an IPv6 address is allowed however it is written: %s',
  async (written) => {
    const server = createServer((_request, response) => response.end('reached'));
    await new Promise<void>((listening) => server.listen(0, '::1', listening));
    onTestFinished(() => new Promise<void>((closed) => server.close(() => closed())));
    const { port } = server.address() as AddressInfo;
    const [address = '', withPort] = written.split(' ');
    const allowed = withPort === undefined ? address : `[${address.replace(/[[\]]/g, '')}]:${port}`;
    const { signal } = new AbortController();
    const url = `http://[::1]:${port}/`;
    await expect(openNetwork({ signal, allowedHosts: [] })(url)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    const fetch = openNetwork({ signal, allowedHosts: [allowed] });
    expect(await (await fetch(url)).text()).toBe('reached');
  },
);
