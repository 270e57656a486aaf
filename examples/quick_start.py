"""Calls a tool of Pawl over HTTP, with nothing but the standard library: quick_start.py TOOL PARAMS_JSON [KEY]"""
import http.client, json, os, sys, time, urllib.error, urllib.request, uuid

URL = os.environ.get("PAWL_URL", "http://127.0.0.1:7070")


def post(body, headers, wait_s):
    request = urllib.request.Request(f"{URL}/v1/calls?wait={wait_s * 1000}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=wait_s + 30) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.headers, refusal.read()


def call(tool, params, key=None, wait_s=30):
    """Runs a tool once; the same key gives the same result, whatever breaks in between."""
    body = json.dumps({"tool": tool, "params": params, "session": "python"}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": json.dumps(key or str(uuid.uuid4()))}
    if "PAWL_TOKEN" in os.environ:
        headers["Authorization"] = f"Bearer {os.environ['PAWL_TOKEN']}"
    while True:
        try:
            code, answer_headers, text = post(body, headers, wait_s)
        except (OSError, http.client.HTTPException):  # the server is away, or its answer broke off; the call is not
            time.sleep(0.2)
            continue
        is_json = answer_headers.get_content_type() == "application/json"
        if code in (429, 503) and answer_headers.get("Retry-After", "").isdigit():
            time.sleep(int(answer_headers["Retry-After"]))
        elif code in (502, 503, 504) and not is_json:  # a proxy answers for a server that is away
            time.sleep(0.2)
        elif not is_json:
            raise RuntimeError(f"{URL} answered {code} and no JSON: is it Pawl's address?")
        elif code != 202:  # 202: the call goes on, so ask again, and wait on
            return json.loads(text)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(json.dumps(call(sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:4]), indent=2))
