#!/usr/bin/env python3
"""Run a command while it alone holds some of the machine's GPUs: jobs of several runners share one host this way.

    tools/gpu_lock_exec --count 2 -- python tests/e2e/test_short.py     # any two; CUDA_VISIBLE_DEVICES names them
    tools/gpu_lock_exec --devices 0,3 -- make bench

A device is locked by `flock` on a file, and this process *becomes* the command, which inherits the locks: signals and
exit status are the command's own, and the kernel frees a device when the command has ended, by SIGKILL too. What the
command leaves running in the background holds its devices on, unless it closes what it inherited.

Who waits stands in a queue and takes devices as they become free, so that eight are not starved by ones.
"""

import argparse
import fcntl
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

POLL_S = 0.2
"""Seconds between two looks at who holds what."""
TELL_S = 60.0
"""Seconds between two lines that say what is waited for; the first is printed at once."""
MISUSED, TIMED_OUT, NOT_FOUND = 2, 124, 127
"""Exit statuses of its own: wrong arguments; no devices within --timeout; no such command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Lock, and become the command; return the exit status where that does not come about."""
    parser = _parser()
    args = parser.parse_args(argv)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        parser.error("what is to be run? Write it behind --, as in: gpu_lock_exec --count 1 -- nvidia-smi")
    count, candidates = _wanted(parser, args)
    try:
        held = Locks(args.lock_folder, candidates).take(count, args.timeout, shlex.join(command))
    except TimeoutError as error:
        print(f"gpu_lock_exec: {error}", file=sys.stderr)
        return TIMED_OUT
    env = {**os.environ, args.variable: ",".join(map(str, held))}
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        print(f"gpu_lock_exec: {command[0]} cannot be run: {error.strerror}", file=sys.stderr)
        return NOT_FOUND


class Locks:
    """The lock files of some devices, and the queue before them."""

    def __init__(self, folder: Path, candidates: Sequence[int]) -> None:
        """Nothing is locked yet.

        Args:
            folder: where the files lie: the same for all who share the machine.
            candidates: devices that will do.
        """
        self._folder, self._candidates = folder, sorted(candidates)
        self._told_at = -TELL_S
        folder.mkdir(parents=True, exist_ok=True)

    def take(self, count: int, timeout_s: float, command: str) -> list[int]:
        """Lock that many, and leave the locks to whatever this process becomes.

        Raises:
            TimeoutError: it took longer; nothing stays locked.
        """
        if count == 0:
            return []
        ends_at = time.monotonic() + timeout_s
        held: dict[int, int] = {}
        queue = self._open("queue")
        try:
            self._wait(lambda: _locked(queue), ends_at, "the first place in the queue", [])
            self._wait(lambda: self._collect(held, count), ends_at, f"{count} of GPUs {self._names()}", held)
        except BaseException:
            for file in held.values():
                os.close(file)
            raise
        finally:
            os.close(queue)
        for file in held.values():
            _write(file, {"pid": os.getpid(), "command": command[:200], "since": time.strftime("%F %T")})
            os.set_inheritable(file, True)
        return sorted(held)

    def _collect(self, held: dict[int, int], count: int) -> bool:
        """Lock what is free, keep it, and say whether it is enough. Only the first of the queue comes here."""
        for device in self._candidates:
            if len(held) < count and device not in held:
                file = self._open(f"gpu{device}")
                if _locked(file):
                    held[device] = file
                else:
                    os.close(file)
        return len(held) == count

    def _wait(self, is_done: Callable[[], bool], ends_at: float, what: str, held: Collection[int]) -> None:
        while not is_done():
            if time.monotonic() >= ends_at:
                raise TimeoutError(f"{what} did not come in time; {self._holders(held)}")
            if time.monotonic() - self._told_at >= TELL_S:
                self._told_at = time.monotonic()
                print(f"gpu_lock_exec: waiting for {what}; {self._holders(held)}", file=sys.stderr, flush=True)
            time.sleep(POLL_S)

    def _holders(self, held: Collection[int]) -> str:
        """Who holds which device, as they wrote it into its file."""
        lines = []
        for device in self._candidates:
            if device in held:
                continue
            file = self._open(f"gpu{device}")
            if not _locked(file):
                said = _read(file)
                by = f"process {said['pid']} since {said['since']}: {said['command']}" if said else "somebody"
                lines.append(f"GPU {device} is held by {by}")
            os.close(file)
        return "; ".join(lines) or "all of them are free, and others were there before"

    def _names(self) -> str:
        return ",".join(map(str, self._candidates))

    def _open(self, name: str) -> int:
        return os.open(self._folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(file: int, said: dict[str, str | int]) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(said).encode(), 0)


def _read(file: int) -> dict[str, str | int]:
    try:
        said = json.loads(os.pread(file, 4096, 0))
        return {key: said[key] for key in ("pid", "since", "command")}
    except (ValueError, KeyError, TypeError):
        return {}  # its holder has not written yet


def _wanted(parser: argparse.ArgumentParser, args: argparse.Namespace) -> tuple[int, list[int]]:
    """How many, of which."""
    if args.devices is not None:
        return len(args.devices), args.devices
    if args.count == 0:
        return 0, []
    total = args.total_gpus if args.total_gpus is not None else _gpus_here()
    if args.count > total:
        parser.error(f"--count {args.count}: there are {total} GPUs here; --total-gpus says another number")
    return args.count, list(range(total))


def _gpus_here() -> int:
    """The NVIDIA devices that the kernel shows."""
    return sum(re.fullmatch(r"nvidia\d+", path.name) is not None for path in Path("/dev").glob("nvidia*"))


def _devices(text: str) -> list[int]:
    found = [int(part) for part in text.split(",")]
    if len(set(found)) != len(found) or min(found) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected different numbers with commas between, such as 0,3")
    return found


def _natural(text: str) -> int:
    if (number := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def _parser() -> argparse.ArgumentParser:
    head, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "gpu_lock_exec", description=head, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--count", type=_natural, help="how many GPUs, any; 0 runs the command at once")
    what.add_argument("--devices", type=_devices, help="which, such as 0,3")
    parser.add_argument("--total-gpus", type=_natural, help="GPUs of this machine (default: what /dev shows)")
    parser.add_argument("--timeout", type=float, default=86400.0, help="seconds to wait for them (default: a day)")
    parser.add_argument(
        "--variable", default="CUDA_VISIBLE_DEVICES", help="the environment variable that names them to the command"
    )
    parser.add_argument(
        "--lock-folder", type=Path, default=Path("/dev/shm/slime-gpu-locks"), help="where the locks lie (%(default)s)"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and what to run")
    return parser


if __name__ == "__main__":
    sys.exit(main())
