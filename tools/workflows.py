"""Write the workflow of this repository from its template and its table of jobs, or run a job's steps here.

    .venv/bin/python tools/workflows.py --write         # pr-test.yml, anew
    .venv/bin/python tools/workflows.py --check         # exit 1 where it is not what they make; `.ci/run` does this
    .venv/bin/python tools/workflows.py --run demo      # `make ci JOB=demo`: a generated job's commands, one by one

What runs here is read from the workflow as it is written, not from the table: it is what the runner would run.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches, unified_diff
from pathlib import Path

import jinja2
from ruamel.yaml import YAML

FOLDER = Path(__file__).resolve().parents[1] / ".github/workflows"
ROOT = FOLDER.parents[1]
WRITTEN, TEMPLATE, TABLE = "pr-test.yml", "pr-test.yml.j2", "jobs.toml"
PYTHON = "3.11"
"""The oldest that is supported, and the one that most jobs take."""
WHEN = {
    "always": "github.event_name != 'schedule'",
    "weekly": "github.event_name == 'schedule' || github.event_name == 'workflow_dispatch'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A table of jobs.toml, which says what its keys mean."""

    id: str
    name: str
    when: str
    minutes: int
    run: Sequence[str]
    python: Sequence[str] = (PYTHON,)
    over: Sequence[str] = ()
    strict: bool = False
    keep: Mapping[str, str] = field(default_factory=dict)
    keep_if: str = "success"

    @property
    def condition(self) -> str:
        """What GitHub asks before it starts it."""
        return WHEN[self.when]

    @property
    def matrix(self) -> dict[str, str]:
        """The axes over which it is repeated."""
        axes = {"python": self.python if len(self.python) > 1 else (), "each": self.over}
        return {key: json.dumps(list(values)) for key, values in axes.items() if values}

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of its commands."""
        strict = {"SLIME_PLUGINS_STRICT": '"1"'} if self.strict else {}
        return strict | ({"EACH": "${{ matrix.each }}"} if self.over else {})

    @property
    def python_version(self) -> str:
        """What setup-python is told."""
        return "${{ matrix.python }}" if "python" in self.matrix else f'"{self.python[0]}"'

    @property
    def shown(self) -> str:
        """What tells the jobs of a matrix apart, behind their name."""
        told = {"python": " (Python ${{ matrix.python }})", "each": " of ${{ matrix.each }}"}
        return "".join(told[axis] for axis in self.matrix)

    @property
    def suffix(self) -> str:
        """The same, behind the name of what is kept."""
        return "".join(f"-${{{{ matrix.{axis} }}}}" for axis in self.matrix)


def main(argv: Sequence[str] | None = None) -> int:
    """Write, check or run; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help=f"write {WRITTEN} anew")
    what.add_argument("--check", action="store_true", help=f"exit 1 where {WRITTEN} is not what would be written")
    what.add_argument("--run", metavar="JOB", help="run the commands of a job here, and stop at the first that fails")
    args = parser.parse_args(argv)
    if args.run is not None:
        return run(args.run)
    expected, path = rendered(), FOLDER / WRITTEN
    if args.write:
        path.write_text(expected, "utf-8")
        return 0
    if (found := path.read_text("utf-8")) == expected:
        return 0
    print(*unified_diff(found.splitlines(), expected.splitlines(), WRITTEN, "expected", lineterm=""), sep="\n")
    print(f"{WRITTEN} is not what {TEMPLATE} and {TABLE} make: python tools/workflows.py --write")
    return 1


def rendered() -> str:
    """The workflow, as text."""
    room = jinja2.Environment(
        block_start_string="<%",  # GitHub's own expressions have the usual braces
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # YAML, of this repository's own texts
    )
    template = room.from_string((FOLDER / TEMPLATE).read_text("utf-8"))
    return template.render(jobs=list(jobs())).rstrip("\n") + "\n"


def jobs() -> Iterator[Job]:
    """The jobs of the table, in its order."""
    for name, given in tomllib.loads((FOLDER / TABLE).read_text("utf-8")).items():
        yield Job(id=name, **given)


def run(name: str) -> int:
    """Run a generated job's commands; return the exit status of the first that fails, or 0."""
    known = YAML(typ="safe").load((FOLDER / WRITTEN).read_text("utf-8"))["jobs"]
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        print(f"there is no job {name!r}.{hint} Jobs: {', '.join(known)}", file=sys.stderr)
        return 2
    job = known[name]
    each = job.get("strategy", {}).get("matrix", {}).get("each", [""])
    for value in each:
        env = {**os.environ, **{key: str(said) for key, said in job.get("env", {}).items()}}
        if value:
            env["EACH"] = value
        for step in job["steps"]:
            command = step.get("run")
            if command is None:
                continue  # actions prepare a bare runner, and keep what is left: there is nothing to do here
            print(f"+ {command}", flush=True)
            done = subprocess.run(["bash", "-eo", "pipefail", "-c", command], cwd=ROOT, env=env, check=False)
            if done.returncode:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
