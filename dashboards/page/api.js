/** The client of the HTTP API. The token, if the server needs one, is kept as long as the tab is open. */
import { learnTime, shownText } from './dom.js';

const TOKEN = 'pawl-token';
const LONGEST_PAUSE_MS = 10_000;
/** A server waits less than this for its Redis, so a server that is silent for longer is blocked or out of reach. */
const SILENCE_MS = 15_000;
/** A request lists so many items at most. */
export const LISTED = 100;

export class ApiError extends Error {
  constructor(status, { code = 'UNREACHABLE', message = 'The server cannot be reached.' } = {}) {
    // A refusal quotes names that callers chose.
    super(shownText(message));
    this.status = status;
    this.code = code;
  }
}

/**
 * The JSON of the response. Throws `ApiError` for refusals, and for a server that is out of reach or does not answer a GET. A GET is sent
 * again when the operator has signed in; a change is not, because another person may have signed in. A body that is text is JSON already.
 */
export async function ask(path, { method = 'GET', body } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  // No header can carry such a token, and the error of the browser would look as if the server were away.
  if (token !== null && /[^\x20-\xff]/.test(token)) {
    await askForToken(token);
    throw new ApiError(401, { code: 'UNAUTHENTICATED', message: 'The token cannot be right.' });
  }
  const headers = {
    ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  };
  // A change may take longer, and a timeout would look as if it had not happened.
  const signal = method === 'GET' ? AbortSignal.timeout(SILENCE_MS) : null;
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      signal,
      body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0);
  }
  learnTime(Date.parse(response.headers.get('date')));
  const answer = await response.json().catch(() => undefined);
  if (response.ok && (answer !== undefined || response.status === 204)) return answer ?? {};
  // The page of a proxy, or an answer that broke off, is none of the server's.
  if (response.ok) throw new ApiError(0);
  if (response.status === 401) {
    await askForToken(token);
    if (method === 'GET' && ![token, null].includes(sessionStorage.getItem(TOKEN))) return ask(path);
  }
  throw new ApiError(response.status, answer?.error);
}

/** One part of a path. */
export const part = encodeURIComponent;

/** The path with a query of the values that are not empty. */
export function withQuery(path, values) {
  return `${path}?${new URLSearchParams(Object.entries(values).filter(([, value]) => value !== ''))}`;
}

export function isSignedIn() {
  return sessionStorage.getItem(TOKEN) !== null;
}

export function signOut() {
  sessionStorage.removeItem(TOKEN);
  location.reload();
}

let asking;

function askForToken(refused) {
  // Another request may have got a new token in the meantime.
  if (sessionStorage.getItem(TOKEN) !== refused) return undefined;
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById('token-dialog');
    const input = document.getElementById('token');
    document.getElementById('token-problem').textContent =
      refused === null ? '' : 'The server does not know this token.';
    input.value = '';
    dialog.addEventListener(
      'close',
      () => {
        if (input.value !== '') sessionStorage.setItem(TOKEN, input.value);
        input.value = '';
        asking = undefined;
        resolve();
      },
      { once: true },
    );
    dialog.showModal();
  });
  return asking;
}

/**
 * Polls while the page is visible, and at once when it becomes visible again; less often while requests fail. `onData` gets the response,
 * `fail` the error. Returns `now()` and `stop()`.
 */
export function watch(path, everyMs, onData, fail) {
  let timer;
  let stopped = false;
  let round = 0;
  let failures = 0;
  const look = async () => {
    clearTimeout(timer);
    round += 1;
    const own = round;
    // A later request may have been answered first.
    const isNewest = () => !stopped && own === round;
    try {
      const answer = await ask(typeof path === 'function' ? path() : path);
      failures = 0;
      if (isNewest()) onData(answer);
    } catch (error) {
      failures += 1;
      if (isNewest()) fail(error);
      if (!(error instanceof ApiError)) throw error;
    } finally {
      const pauseMs = Math.min(LONGEST_PAUSE_MS, everyMs * 2 ** Math.min(failures, 8));
      if (isNewest() && !document.hidden) timer = setTimeout(look, pauseMs);
    }
  };
  const seen = () => {
    if (!document.hidden) void look();
  };
  document.addEventListener('visibilitychange', seen);
  void look();
  return {
    now: look,
    stop() {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', seen);
    },
  };
}
