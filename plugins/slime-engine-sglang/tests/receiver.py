"""A server process that receives weights as SGLang does, with torch: sessions, process groups and broadcasts.

python receiver.py      # prints its port; POST /fail {"path": "/update_weights_from_distributed"} makes a call fail
python receiver.py 0.5.19       # behaves like this release; sessions exist since 0.5.21
"""

import base64
import hashlib
import http.server
import json
import pickle  # noqa: TID251  # as SGLang does
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

RELEASE = sys.argv[1] if sys.argv[1:] else "0.5.23"
SESSIONS = int(RELEASE.split(".")[2]) >= 21
groups: dict[str, dist.ProcessGroup] = {}
state: dict[str, object] = {
    "session": False,
    "version": "default",
    "paused": False,
    "fail": "",
    "calls": [],
    "released": [],
}
weights: dict[str, torch.Tensor] = {}


class Refused(Exception):
    pass


def init(body: dict) -> None:
    address, port, size = body["master_address"], body["master_port"], body["world_size"]
    timeout, name, rank = timedelta(seconds=30), body["group_name"], body["rank_offset"]
    store = distributed_c10d.PrefixStore(name, dist.TCPStore(address, port, size, timeout=timeout))
    new_group = distributed_c10d._new_process_group_helper  # noqa: SLF001  # as SGLang does: no public call has it
    group, _ = new_group(size, rank, [], body["backend"], store, group_name=name, timeout=timeout)
    distributed_c10d._world.pg_group_ranks[group] = {each: each for each in range(size)}  # noqa: SLF001  # as above
    groups[name] = group


def generated(body: dict) -> dict:
    """One token, with the version of the server's weights."""
    meta = {
        "finish_reason": {"type": "length", "length": 1},
        "output_token_logprobs": [[-1.0, 7, None]],
        "weight_version": state["version"],
    }
    return {"output_ids": [7], "meta_info": meta}


def destroy(body: dict) -> None:
    dist.destroy_process_group(groups.pop(body["group_name"]))


def require_session() -> None:
    if SESSIONS and not state["session"]:
        raise Refused("update_weights must run between begin_weight_update() and end_weight_update()")


def tensor(body: dict) -> None:
    require_session()
    (payload,) = body["serialized_named_tensors"]
    for name, each in pickle.loads(base64.b64decode(payload)):
        weights[name] = each.clone()
    state["version"] = body["weight_version"]


def update(body: dict) -> None:
    require_session()
    assert body["load_format"] == "flattened_bucket"
    dtypes = [getattr(torch, each) for each in body["dtypes"]]
    sizes = [torch.Size(shape).numel() * dtype.itemsize for shape, dtype in zip(body["shapes"], dtypes, strict=True)]
    flat = torch.empty(sum(sizes), dtype=torch.uint8)
    dist.broadcast(flat, src=0, group=groups[body["group_name"]])
    for name, shape, dtype, part in zip(body["names"], body["shapes"], dtypes, flat.split(sizes), strict=True):
        weights[name] = part.view(dtype).view(shape)
    state["version"] = body["weight_version"]


def fail(path: str) -> None:
    """Make this call fail from now on, and forget earlier calls."""
    state.update(fail=path, calls=[])


def session(opened: bool) -> None:
    if state["session"] == opened:
        raise Refused("a weight-update session is already open" if opened else "no weight-update session is open")
    state["session"] = opened


CALLS = {
    "/init_weights_update_group": init,
    "/destroy_weights_update_group": destroy,
    "/update_weights_from_distributed": update,
    "/update_weights_from_tensor": tensor,
    "/pause_generation": lambda body: state.update(paused=True),
    "/continue_generation": lambda body: state.update(paused=False),
    "/release_memory_occupation": lambda body: state.update(released=body["tags"]),
    "/resume_memory_occupation": lambda body: state.update(released=[]),
    "/fail": lambda body: fail(body["path"]),
    "/generate": generated,
}
if SESSIONS:
    CALLS |= {"/begin_weight_update": lambda body: session(True), "/end_weight_update": lambda body: session(False)}


def server_state() -> dict[str, object]:
    sums = {name: hashlib.sha256(each.numpy().tobytes()).hexdigest() for name, each in sorted(weights.items())}
    return {**state, "groups": len(groups), "sums": sums}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers = {
            "/state": server_state,
            "/ready": dict,
            "/server_info": lambda: {
                "version": RELEASE,
                "model_path": "tiny",
                "max_req_input_len": 250,
                "tp_size": 1,
                "device": "cpu",
            },
            "/model_info": dict,
            "/v1/models": lambda: {"data": [{"max_model_len": 256}]},
        }
        self._answer(200, answers[self.path]())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        state["calls"] = [*state["calls"], self.path]
        try:
            if state["fail"] == self.path:
                raise Refused("this call must fail")
            answer = CALLS[self.path](body)
        except (Refused, RuntimeError, KeyError) as error:
            self._answer(400, {"success": False, "message": f"{error}"})
        else:
            self._answer(200, {"success": True, "message": "Success", **(answer or {})})

    def _answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


if __name__ == "__main__":
    torch.set_num_threads(1)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
