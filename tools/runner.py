"""Runs a job of a workflow on this machine: its commands, as a GitHub runner would run them, reusable workflows and
composite actions included.

    .venv/bin/python tools/runner.py .github/workflows/ci.yml contracts --repository ../slime-reward-mine --rooms rooms

Actions that prepare a bare runner are passed over, but setup-python where `rooms` are given: a virtual environment for
each value of the matrix. An expression that is not understood is refused, not guessed.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

_EXPRESSION = re.compile(r"\$\{\{\s*(?P<call>fromJSON\()?(?P<space>inputs|matrix|vars)\.(?P<key>[\w-]+)\)?\s*\}\}")


class Refusal(Exception):
    """What is wrong, in a sentence."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Where jobs run, and what they are told."""

    root: Path
    """The repository."""
    rooms: Path | None = None
    """Where environments of Python are made; None takes what is on PATH."""
    spaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What `inputs`, `matrix` and `vars` hold."""
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """Of every command."""

    def run(self, workflow: Path, name: str) -> int:
        """Run a job, for each value of its matrix; return the exit status of the first command that fails, or 0.

        Raises:
            Refusal: there is no such job, or it says what cannot be run here.
        """
        jobs = _read(workflow)["jobs"]
        if name not in jobs:
            near = get_close_matches(name, jobs, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise Refusal(f"there is no job {name!r}.{hint} Jobs: {', '.join(jobs)}")
        job = jobs[name]
        if "uses" in job:
            return self._called(job["uses"], job.get("with", {}))
        for values in self._matrix(job.get("strategy", {}).get("matrix", {})):
            one = replace(self, spaces={**self.spaces, "matrix": values})
            one = replace(one, env={**self.env, **one._filled(job.get("env", {}))})
            if status := one._steps(job["steps"]):
                return status
        return 0

    def _steps(self, steps: Sequence[Mapping[str, Any]]) -> int:
        """Run steps one by one, up to the first that fails."""
        here = self
        for step in steps:
            if str(step.get("uses", "")).startswith("actions/setup-python@") and self.rooms:
                version = self._text(str(step["with"]["python-version"]))
                here = replace(here, env=_with_python(self.rooms, version, here.env))
            elif status := here._step(step):
                return status
        return 0

    def _step(self, step: Mapping[str, Any]) -> int:
        """Run one; return its exit status."""
        env = {**self.env, **self._filled(step.get("env", {}))}
        if "run" in step:
            folder = self.root / self._text(step.get("working-directory", "."))
            return _shell(self._text(step["run"]), folder, env)
        if step["uses"].startswith("./"):
            action = _read(self.root / step["uses"] / "action.yml")
            inputs = _inputs(action["inputs"], self._filled(step.get("with", {})))
            inside = replace(self, env=env, spaces={**self.spaces, "inputs": inputs})
            return inside._steps(action["runs"]["steps"])
        return 0  # an action that prepares a bare runner, or keeps what is left: there is nothing to do here

    def _text(self, template: str) -> str:
        """A text with its expressions filled in.

        Raises:
            Refusal: an expression is not understood, or names what nobody gave.
        """
        filled = _EXPRESSION.sub(lambda found: self._value(found["space"], found["key"]), template)
        if left := re.search(r"\$\{\{.*?\}\}", filled):
            raise Refusal(f"{left[0]} cannot be worked out here: only inputs, matrix and vars are known")
        return filled

    def _filled(self, given: Mapping[str, object]) -> dict[str, str]:
        """Each value as text."""
        return {key: self._text(str(value)) for key, value in given.items()}

    def _value(self, space: str, key: str) -> str:
        known = self.spaces.get(space, {})
        if key not in known and space != "vars":  # a variable that nobody set is empty, as on GitHub
            raise Refusal(f"{space}.{key} is not given; given: {', '.join(known) or 'nothing'}")
        return known.get(key, "")

    def _called(self, path: str, given: Mapping[str, object]) -> int:
        """Run every job of a reusable workflow of this repository."""
        if not path.startswith("./"):
            raise Refusal(f"{path} is in another repository: only those of this one, ./..., can be run here")
        called = _read(self.root / path)
        inputs = _inputs(called["on"]["workflow_call"]["inputs"], self._filled(given))
        inside = replace(self, spaces={**self.spaces, "inputs": inputs})
        return next((status for name in called["jobs"] if (status := inside.run(self.root / path, name))), 0)

    def _matrix(self, axes: Mapping[str, object]) -> Iterator[dict[str, str]]:
        values = [self._axis(key, said) for key, said in axes.items()]
        for chosen in itertools.product(*values):
            yield dict(zip(axes, chosen, strict=True))

    def _axis(self, key: str, said: object) -> list[str]:
        listed = said
        if isinstance(said, str):
            try:
                listed = json.loads(self._text(said))
            except ValueError:
                raise Refusal(f"matrix.{key} is {self._text(said)!r}; expected a list in JSON") from None
        if not isinstance(listed, list) or not listed:
            raise Refusal(f"matrix.{key} is {listed!r}; expected a list with something in it")
        # Without rooms there is one Python, and it is what is on PATH.
        return [str(each) for each in (listed[:1] if key == "python" and self.rooms is None else listed)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job that is named; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("workflow", type=Path, help="its file, from the repository's root")
    parser.add_argument("job", help="its name there")
    parser.add_argument("--repository", type=Path, default=Path.cwd(), help="where (this folder)")
    parser.add_argument("--rooms", type=Path, help="a folder for environments of Python; without it, the one on PATH")
    parser.add_argument("--variable", action="append", default=[], metavar="NAME=TEXT", help="what vars.NAME is")
    args = parser.parse_args(argv)
    variables = dict(each.split("=", 1) for each in args.variable)
    runner = Runner(args.repository.resolve(), args.rooms and args.rooms.resolve(), {"vars": variables})
    try:
        return runner.run(args.repository / args.workflow, args.job)
    except Refusal as refusal:
        print(f"runner: {refusal}", file=sys.stderr)
        return 2


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise Refusal(f"{path} is not there")
    read: dict[str, Any] = YAML(typ="safe").load(path.read_text("utf-8"))
    return read


def _inputs(known: Mapping[str, Mapping[str, object]], given: Mapping[str, str]) -> dict[str, str]:
    """What is given, and what is said where it is not."""
    if foreign := given.keys() - known.keys():
        raise Refusal(f"no input {', '.join(sorted(foreign))}; inputs: {', '.join(known)}")
    if missing := [key for key, said in known.items() if said.get("required") and key not in given]:
        raise Refusal(f"the input {', '.join(missing)} is required")
    return {key: given.get(key, str(said.get("default", ""))) for key, said in known.items()}


def _shell(command: str, folder: Path, env: Mapping[str, str]) -> int:
    print("+ " + command.rstrip().replace("\n", "\n+ "), flush=True)
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]
    return subprocess.run(bash, cwd=folder, env=env, check=False).returncode


def _with_python(rooms: Path, version: str, env: Mapping[str, str]) -> dict[str, str]:
    """An environment of that Python, new; of the one that runs this where that is not here."""
    room = rooms / f"{len(list(rooms.glob('*'))) + 1}-python{version}"
    made = subprocess.run([f"python{version}", "-m", "venv", str(room)], check=False) if _is_here(version) else None
    if made is None or made.returncode:
        print(f"Python {version} is not here: {sys.version.partition(' ')[0]} is taken", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(room)], check=True)
    return {**env, "VIRTUAL_ENV": str(room), "PATH": f"{room / 'bin'}{os.pathsep}{env.get('PATH', '')}"}


def _is_here(version: str) -> bool:
    found = subprocess.run(["bash", "-c", f"command -v python{version}"], capture_output=True, check=False)
    return found.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
