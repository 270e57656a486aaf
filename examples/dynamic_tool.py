"""Runs a tool for Pawl's sessions, with nothing but the standard library: dynamic_tool.py [HOW_MANY_CALLS]"""
import http.client, json, os, sys, threading, time, urllib.error, urllib.request

URL, TOKEN = os.environ.get("PAWL_URL", "http://127.0.0.1:7070"), os.environ.get("PAWL_TOKEN", "")
TOOL = {"kind": "dynamic", "version": "1.0.0", "description": "Counts the words of a text.", "effects": "idempotent",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}}
running = []


def count_words(text):
    return {"output": {"words": len(text.split())}}


def ask(method, path, body=None):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    while True:
        try:
            request = urllib.request.Request(URL + path, body and json.dumps(body).encode(), headers, method=method)
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read() or "{}")
        except urllib.error.HTTPError as refusal:
            if refusal.code == 409:  # nobody waits for the call any more
                return {}
            if refusal.code not in (429, 502, 503, 504):  # of these, a proxy sends some for a server that is away
                raise
            time.sleep(int(refusal.headers.get("Retry-After", 1)))
        except (OSError, http.client.HTTPException):  # the server is away; calls and lease are not
            time.sleep(0.2)


def beat(client, every_s):
    while True:  # a call may take longer than the lease
        time.sleep(every_s)
        ask("POST", f"{client}/heartbeat", {"running": running})


if __name__ == "__main__":
    ask("PUT", "/v1/tools/count_words", TOOL)
    me = ask("POST", "/v1/tool-clients", {"tools": ["count_words"]})
    client = f"/v1/tool-clients/{me['clientId']}"
    threading.Thread(target=beat, args=(client, me["leaseMs"] / 3000), daemon=True).start()
    print("serving", flush=True)
    left = int(sys.argv[1]) if len(sys.argv) > 1 else sys.maxsize
    while left > 0:
        call = ask("POST", f"{client}/next", {"running": []}).get("call")
        if call is not None:
            running[:] = [call["callId"]]
            result = {"fence": call["fence"], **count_words(**call["arguments"])}
            ask("POST", f"{client}/calls/{call['callId']}/result", result)
            running.clear()
            left -= 1
    ask("DELETE", client)
