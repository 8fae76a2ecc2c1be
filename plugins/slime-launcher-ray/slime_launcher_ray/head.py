"""Head: a process that owns a local cluster and ends it when its driver ends for any reason.

It runs in a separate session, so signals to the driver's session do not reach it. Ray's processes die with the thread
that started them, which is the head's main thread. The mark finds processes that Ray leaves running.

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

from slime_launcher_ray.guard import kill_marked, remove

MARK = "SLIME_RAY_CLUSTER"
"""Environment variable that marks all processes of a local cluster."""


def main() -> None:
    """Start the cluster, print its address, and wait until the driver or the cluster ends."""
    options = json.loads(sys.argv[1])
    driver = os.pidfd_open(int(options["driver"]))
    failed = False
    try:
        address = _start(options)
        sys.stdout.write(f"{json.dumps({'address': address})}\n")
        sys.stdout.flush()
        select.select([sys.stdin, driver, *_servers()], [], [])
    except Exception as error:
        failed = True
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        kill_marked(f"{MARK}={options['mark']}")
        if not failed or select.select([driver], [], [], 0)[0]:  # else the driver reads the logs there and removes it
            remove(str(options["folder"]))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(failed))  # Ray's exit handlers would wait for the processes just killed


def _start(options: dict[str, object]) -> str:
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    memory = cast(int | None, options["object_store_mb"])
    ray.init(
        num_gpus=cast(int | None, options["num_gpus"]),
        object_store_memory=memory * 2**20 if memory is not None else None,
        include_dashboard=bool(options["dashboard"]),
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=str(options["folder"]),
    )
    return str(ray.get_runtime_context().gcs_address)


def _servers() -> list[int]:
    """The pidfds of Ray's control store (GCS) and raylet. Without either of them the cluster is lost.

    Ray reports a dead GCS after a minute. It notices a dead raylet after 12 s, and may then end the driver without a
    message (`connection.cc`: "The connection to the plasma store is failed. Terminate the process").
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            name, parent = (process / "comm").read_text().strip(), (process / "stat").read_text().rpartition(")")[2]
            if name in ("gcs_server", "raylet") and int(parent.split()[1]) == os.getpid():
                found.append(os.pidfd_open(int(process.name)))
    return found


if __name__ == "__main__":
    main()
