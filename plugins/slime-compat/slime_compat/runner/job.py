"""Job: a run that a Ray cluster has, through `slime submit` of slime-launcher-ray and whatever machine reaches it.

Example:

    job = Job("http://head:8265", "raysubmit_AbCd")
    job.outcome(), job.logs(), job.stop()
"""

import re
import subprocess
import sys
from dataclasses import dataclass

from slime_compat.runner.result import STATUS, Outcome
from slime_core.errors import ConfigError, SlimeError

UNDER_WAY = re.compile(r": (pending|running)\b")
NAMED = re.compile(rb"^job (\S+): ", re.MULTILINE)
"""What `slime submit` says first."""
BAD_INPUT = 2


@dataclass(frozen=True, slots=True)
class Job:
    """One of them."""

    address: str
    """Of the server of jobs."""
    name: str
    """As the cluster calls it."""

    def outcome(self) -> Outcome:
        """How it stands.

        Raises:
            ConfigError: the cluster does not answer, or has no such job.
        """
        status, said = self._submit("status")
        if UNDER_WAY.search(said):
            return Outcome.RUNNING
        self._check(status, said)
        return STATUS.get(status, Outcome.FAILED)

    def logs(self) -> str:
        """What it has said so far; errors as of `outcome`."""
        status, said = self._submit("logs")
        self._check(status, said)
        return said

    def stop(self) -> None:
        """Ask it to finish its step, save and end; errors as of `outcome`."""
        self._check(*self._submit("stop"))

    def _submit(self, what: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "slime_core", "submit", what, self.name, "--address", self.address]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout or (done.stderr if done.returncode else "")

    def _check(self, status: int, said: str) -> None:
        if status == BAD_INPUT and not said.startswith(self.name):
            raise ConfigError(said.strip().removeprefix("error: "))
        if status not in STATUS and not said.startswith(self.name):
            raise SlimeError(f"slime submit ended with {status}: {said.strip()}")


def named_in(log: bytes) -> str | None:
    """The name of the job that a log begins with."""
    found = NAMED.search(log)
    return found[1].decode() if found else None
