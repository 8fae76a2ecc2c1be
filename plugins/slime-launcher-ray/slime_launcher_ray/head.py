"""Head: a process that owns a cluster of this machine, and ends the cluster when its driver ends for any reason.

It runs in a separate session, so that signals to the driver's session do not reach it. Ray's processes die with the
thread that started them, the head's main thread. The mark finds processes that Ray leaves running.

    python -m slime_launcher_ray.head '{"mark": "...", "folder": "/tmp/...", ...}'         # prints its address
"""

import json
import logging
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import cast

from slime_launcher_ray.guard import end_marked, remove

MARK = "SLIME_RAY_CLUSTER"
"""The variable that all processes of such a cluster have."""


def main() -> None:
    """Start the cluster, print its address, and wait."""
    asked = json.loads(sys.argv[1])
    driver = os.pidfd_open(int(asked["driver"]))
    failed = False
    try:
        address = _start(asked)
        sys.stdout.write(f"{json.dumps({'address': address})}\n")
        sys.stdout.flush()
        select.select([sys.stdin, driver, *_servers()], [], [])
    except Exception as error:
        failed = True
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        end_marked(f"{MARK}={asked['mark']}")
        if not failed or select.select([driver], [], [], 0)[0]:  # else it reads there what was said, and removes it
            remove(str(asked["folder"]))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(failed))  # Ray's own way out waits for those that were just killed


def _start(asked: dict[str, object]) -> str:
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    memory = cast(int | None, asked["object_store_mb"])
    ray.init(
        num_gpus=cast(int | None, asked["num_gpus"]),
        object_store_memory=memory * 2**20 if memory is not None else None,
        include_dashboard=bool(asked["dashboard"]),
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=str(asked["folder"]),
    )
    return str(ray.get_runtime_context().gcs_address)


def _servers() -> list[int]:
    """The pidfds of Ray's store and raylet: the cluster is lost with either.

    Ray reports a dead store after a minute. It notices a dead raylet after 12 s, and may then end the driver without a
    message (`connection.cc`: "The connection to the plasma store is failed. Terminate the process").
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            name, parent = (process / "comm").read_text().strip(), (process / "stat").read_text().rpartition(")")[2]
            if name in ("gcs_server", "raylet") and int(parent.split()[1]) == os.getpid():
                found.append(os.pidfd_open(int(process.name)))
    return found


if __name__ == "__main__":
    main()
