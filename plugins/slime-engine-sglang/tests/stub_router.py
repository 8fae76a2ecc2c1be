"""A router process with the HTTP API of smg and sglang-router: round-robin, or by the session's key.

python stub_router.py ... --host 127.0.0.1 --port 30000 [--fail]

It also answers the queries to a router's Python: installed releases and arguments.
"""

import argparse
import http.client
import http.server
import itertools
import json
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

if sys.argv[1] == "-c":
    print("smg 1.13.0\nsglang-router 0.3.2")
    sys.exit()
if sys.argv[1] == "-P":
    Path(sys.argv[3]).write_text('[{"name": "fail", "kind": "switch"}]', "utf-8")
    sys.exit()

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--host")
parser.add_argument("--port", type=int)
parser.add_argument("--fail", action="store_true")
given, _ = parser.parse_known_args()

KEY = "X-SMG-Routing-Key"
workers: dict[str, str] = {}
lock, turns, ids = threading.Lock(), itertools.count(), itertools.count()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        listed = [{"id": key, "url": url, "is_healthy": True} for key, url in workers.items()]
        self._reply(200, json.dumps({"workers": listed}).encode() if self.path == "/workers" else b"OK")

    def do_DELETE(self) -> None:
        workers.pop(self.path.rpartition("/")[2], None)
        self._reply(202, b"{}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/workers":
            workers[str(next(ids))] = json.loads(body)["url"]
            self._reply(202, b"{}")
        elif self.path != "/generate":
            self._reply(404, b"")
        else:
            self._forward(body)

    def _forward(self, body: bytes) -> None:
        with lock:
            urls = sorted(workers.values())
            number = sum(self.headers[KEY].encode()) if self.headers[KEY] else next(turns)
        if not urls:
            return self._reply(503, b'{"error":{"message":"No available workers"}}')
        connection = http.client.HTTPConnection(urlsplit(urls[number % len(urls)]).netloc)
        try:
            connection.request("POST", self.path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            self.send_response(answer.status)
            self.send_header("connection", "close")
            self.end_headers()
            while part := answer.read1():
                self.wfile.write(part)
                self.wfile.flush()
            self.close_connection = True
        except OSError as error:
            self._reply(502, str(error).encode())

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


if given.fail:
    print("error: unrecognized arguments: --fail", file=sys.stderr)
    sys.exit(2)
Server((given.host, given.port), Handler).serve_forever()
