#!/usr/bin/env python3
"""A receiver of dtask's webhooks: checks the signature, ignores repeats, prints.

    echo "whsec_$(head -c 32 /dev/urandom | base64)" > secret
    python3 examples/webhook_receiver.py 8080 secret &
    bin/dtaskd --dev --webhook-secret-file secret --dead-letter-webhook http://127.0.0.1:8080/

and `webhook: http://127.0.0.1:8080/` in a job file. See docs/webhooks.md.
"""

import base64
import collections
import hashlib
import hmac
import http.server
import json
import sys
import time

FRESH = 300  # seconds that a request may be old, or early
KEPT = 100_000  # ids that are remembered


def genuine(headers, body, secret):
    """Says whether a request was signed with the secret, and lately."""
    try:
        sent = int(headers["webhook-timestamp"])
        parts = [headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body]
        signatures = headers["webhook-signature"].split()
    except (AttributeError, KeyError, TypeError, ValueError):
        return False  # a header is missing or is none
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(key, b".".join(parts), hashlib.sha256)
    want = "v1," + base64.b64encode(mac.digest()).decode()
    return abs(time.time() - sent) < FRESH and any(hmac.compare_digest(want, s) for s in signatures)


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    secret = ""
    seen = collections.OrderedDict()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not genuine(self.headers, body, self.secret):
            self.answer(401)
            return
        name = self.headers["webhook-id"]
        if name not in self.seen:
            event = json.loads(body)
            print(event["timestamp"], event["type"], event["data"]["id"], event["data"].get("state", ""), flush=True)
            self.seen[name] = True
            if len(self.seen) > KEPT:
                self.seen.popitem(last=False)
        self.answer(204)

    def answer(self, code):
        self.send_response(code)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} PORT SECRET-FILE")
    with open(sys.argv[2], encoding="ascii") as file:
        Receiver.secret = file.read().strip()
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
