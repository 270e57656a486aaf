"""Calls a tool of Pawl over HTTP, with nothing but the standard library: quick_start.py TOOL PARAMS_JSON [KEY]"""
import json, os, sys, time, urllib.error, urllib.request, uuid

URL = os.environ.get("PAWL_URL", "http://127.0.0.1:7070")


def call(tool, params, key=None, wait_s=30):
    """Runs a tool once; the same key gives the same result, whatever breaks in between."""
    body = json.dumps({"tool": tool, "params": params, "session": "python"}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": json.dumps(key or str(uuid.uuid4()))}
    if "PAWL_TOKEN" in os.environ:
        headers["Authorization"] = f"Bearer {os.environ['PAWL_TOKEN']}"
    while True:
        try:
            request = urllib.request.Request(f"{URL}/v1/calls?wait={wait_s * 1000}", body, headers)
            with urllib.request.urlopen(request) as response:
                answer = json.load(response)
            if "status" in answer:  # without it the call goes on: ask again, and wait on
                return answer
        except urllib.error.HTTPError as refusal:
            if refusal.code not in (429, 503) or "Retry-After" not in refusal.headers:
                return json.load(refusal)
            time.sleep(int(refusal.headers["Retry-After"]))
        except OSError:  # the server is away; the call is not
            time.sleep(0.2)


if __name__ == "__main__":
    print(json.dumps(call(sys.argv[1], json.loads(sys.argv[2]), *sys.argv[3:4]), indent=2))
