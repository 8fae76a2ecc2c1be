"""A server process with the HTTP API of SGLang's releases, but without SGLang, for tests of starting and watching it.

python stub_server.py ... --host 127.0.0.1 --port 30000 --model-path DIR [--release 0.5.9] [--fail] [--die]
"""

import argparse
import http.server
import json
import os
import sys
import threading

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--host")
parser.add_argument("--port", type=int)
parser.add_argument("--model-path")
parser.add_argument("--release", default="0.5.23")
parser.add_argument("--fail", action="store_true")
parser.add_argument("--die", action="store_true")
given, _ = parser.parse_known_args()

NUMBER = tuple(map(int, given.release.split(".")[:3]))
SPANS, READY = NUMBER >= (0, 5, 19), NUMBER >= (0, 5, 21)
DRAFTS = (
    {"spec_num_correct_drafts": 3, "spec_num_proposed_drafts": 4, "spec_verify_ct": 2}
    if NUMBER >= (0, 5, 12)
    else {"spec_accept_token_num": 3, "spec_draft_token_num": 4, "spec_verify_ct": 2}
)
served = {"version": "default"}
calls: list[str] = []
written = threading.Lock()


def generated(body: dict) -> dict:
    size = body["sampling_params"]["max_new_tokens"]
    version = served["version"]
    meta = {
        "id": body["rid"],
        "finish_reason": {"type": "length", "length": size},
        "output_token_logprobs": [[-1.0, 7, None]] * size,
        "weight_version": version,
        "cached_tokens": 0,
        **DRAFTS,
    }
    if SPANS:
        meta["weight_versions"] = [{"version": version, "start": 0, "end": size}]
    return {"text": "", "output_ids": [7] * size, "meta_info": meta}


def loaded(body: dict) -> dict:
    served["version"] = body["weight_version"]
    return {"success": True, "message": "", "num_paused_requests": 0}


INFO = {
    "version": given.release,
    "model_path": given.model_path,
    "max_req_input_len": 250,
    "argv": sys.argv[1:],
    "tmpdir": os.environ["TMPDIR"],
    "calls": calls,
}
GETS = {
    **({"/ready": {}} if READY else {}),
    "/health_generate": {},
    "/server_info": INFO,
    "/model_info": {"model_path": given.model_path, "tokenizer_path": given.model_path},
    "/v1/models": {"data": [{"max_model_len": 256}]},
}
POSTS = {
    "/generate": generated,
    "/update_weights_from_disk": loaded,
    "/pause_generation": lambda body: {"status": "ok"},
    "/continue_generation": lambda body: {"status": "ok"},
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(GETS.get(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or "{}")
        if given.die:
            print("the last words of a server", flush=True)
            os._exit(7)
        with written:
            calls.append(self.path)
        self._answer(POSTS[self.path](body) if self.path in POSTS else None)

    def _answer(self, found: dict | None) -> None:
        body = json.dumps({"detail": "Not Found"} if found is None else found).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


if given.fail:
    print("there is no such model", file=sys.stderr)
    sys.exit(3)
http.server.ThreadingHTTPServer((given.host, given.port), Handler).serve_forever()
