#!/usr/bin/env python3
"""A receiver of dtask's webhooks: verifies signatures, ignores duplicates, prints events.

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
import threading
import time

MAX_SKEW = 300  # seconds between a request's timestamp and the local clock
MAX_SEEN = 100_000  # IDs that are remembered


def verify(headers, body, secret):
    """Reports whether a request is signed with the secret and recent."""
    try:
        sent = int(headers["webhook-timestamp"])
        parts = [headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body]
        signatures = headers["webhook-signature"].split()
    except (AttributeError, KeyError, TypeError, ValueError):
        return False  # a header is missing or malformed
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(key, b".".join(parts), hashlib.sha256)
    want = "v1," + base64.b64encode(mac.digest()).decode()
    return abs(time.time() - sent) < MAX_SKEW and any(hmac.compare_digest(want, s) for s in signatures)


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    secret = ""
    seen = collections.OrderedDict()
    lock = threading.Lock()  # guards seen: each connection has a thread

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not verify(self.headers, body, self.secret):
            self.respond(401)
            return
        message_id = self.headers["webhook-id"]
        with self.lock:
            if message_id not in self.seen:
                event = json.loads(body)
                print(event["timestamp"], event["type"], event["data"]["id"], event["data"].get("state", ""), flush=True)
                self.seen[message_id] = True
                if len(self.seen) > MAX_SEEN:
                    self.seen.popitem(last=False)
        self.respond(204)

    def respond(self, code):
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
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
