/** The HTTP API, as the page asks it. The token, where the server wants one, lives as long as the tab. */

const TOKEN = 'pawl-token';
const LONGEST_PAUSE_MS = 10_000;
/** Longer than a server waits for its Redis: one that says nothing by then stands still, or the way to it is cut. */
const SILENCE_MS = 15_000;
/** One look lists so many at most: there may be more. */
export const LISTED = 100;

export class ApiError extends Error {
  constructor(status, { code = 'UNREACHABLE', message = 'The server cannot be reached.' } = {}) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The answer's JSON. Throws `ApiError` for refusals, and for a server that is out of reach or does not answer a question. */
export async function ask(path, { method = 'GET', body } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  // No header can carry it: the browser would not even ask, as if the server were away.
  if (token !== null && /[^\x20-\xff]/.test(token)) {
    await askForToken(token);
    throw new ApiError(401, { code: 'UNAUTHENTICATED', message: 'The token cannot be right.' });
  }
  const headers = {
    ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  };
  // What changes something may take longer, and must not look undone.
  const signal = method === 'GET' ? AbortSignal.timeout(SILENCE_MS) : null;
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0);
  }
  const answer = await response.json().catch(() => {
    if (signal?.aborted) throw new ApiError(0);
    return {};
  });
  if (response.ok) return answer;
  if (response.status === 401) await askForToken(token);
  throw new ApiError(response.status, answer.error);
}

/** One part of a path. */
export const part = encodeURIComponent;

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
 * Asks again and again while the page is seen, and at once when it is seen again; less and less often while it fails. `tell` gets
 * the answer, `fail` the error. The answer of `watch` has `now()` and `stop()`.
 */
export function watch(path, everyMs, tell, fail) {
  let timer;
  let stopped = false;
  let round = 0;
  let failures = 0;
  const look = async () => {
    clearTimeout(timer);
    round += 1;
    const own = round;
    // A later look may have been faster.
    const isNewest = () => !stopped && own === round;
    try {
      const answer = await ask(typeof path === 'function' ? path() : path);
      failures = 0;
      if (isNewest()) tell(answer);
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
