/** The HTTP API, as the page asks it. The token, where the server wants one, lives as long as the tab. */

const TOKEN = 'pawl-token';

export class ApiError extends Error {
  constructor(status, { code = 'UNREACHABLE', message = 'The server cannot be reached.' } = {}) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The answer's JSON. Throws `ApiError` for refusals and for a server that is out of reach. */
export async function ask(path, { method = 'GET', body } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = {
    ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  };
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new ApiError(0);
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  if (response.status === 401) await askForToken();
  throw new ApiError(response.status, answer.error);
}

let asking;

function askForToken() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById('token-dialog');
    const input = document.getElementById('token');
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
 * Asks again and again while the page is seen, and at once when it is seen again. `tell` gets the answer, `fail` the error.
 * The answer of `watch` has `now()` and `stop()`.
 */
export function watch(path, everyMs, tell, fail) {
  let timer;
  let stopped = false;
  let round = 0;
  const look = async () => {
    clearTimeout(timer);
    round += 1;
    const own = round;
    try {
      const answer = await ask(typeof path === 'function' ? path() : path);
      // A later look may have been faster.
      if (!stopped && own === round) tell(answer);
    } catch (error) {
      if (!stopped && own === round) fail(error);
    }
    if (!stopped && own === round && !document.hidden) timer = setTimeout(look, everyMs);
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
