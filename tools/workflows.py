"""Write the workflows of this repository from their templates and the table of jobs, or run a job's steps here.

    .venv/bin/python tools/workflows.py --write         # all of them, anew, and what plugins' repositories are given
    .venv/bin/python tools/workflows.py --check         # exit 1 where one is not what they make; `.ci/run` does this
    .venv/bin/python tools/workflows.py --run demo      # `make ci JOB=demo`: a generated job's commands, one by one

What runs here is read from the workflow as it is written, not from the table: it is what the runner would run.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path

import jinja2
from changed_tests import num_gpus
from runner import Refusal, Runner

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / ".github/workflows/jobs.toml"
INSTALL = ROOT / ".github/workflows/install-plugin.sh"
"""The step that plugins' repositories install with, in a workflow and in an action."""
WORKFLOW = ".github/workflows/pr-test.yml"
FOR_PLUGINS = ".github/workflows/plugin-contracts.yml"
TEMPLATES = {path: f"{path}.j2" for path in (WORKFLOW, FOR_PLUGINS, ".github/actions/plugin-contracts/action.yml")}
"""What is written, by path, and its template."""
SCAFFOLD = "plugins/slime-testing/slime_testing/scaffold/templates/common/plugin-contracts.yml.tmpl"
"""FOR_PLUGINS once more, as `slime plugins new` writes it: a `string.Template`."""
PYTHON = "3.11"
"""The oldest that is supported, and the one that most jobs take."""
WHEN = {
    # A label starts the job that it names, and nothing anew that runs already.
    "always": "github.event_name != 'schedule' && github.event.action != 'labeled'",
    "weekly": "github.event_name == 'schedule' || github.event_name == 'workflow_dispatch'",
}
LABELLED = (
    "github.event_name == 'workflow_dispatch' || github.event.label.name == '{0}' || "
    "(github.event.action != 'labeled' && contains(github.event.pull_request.labels.*.name, '{0}'))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A table of jobs.toml, which says what its keys mean."""

    id: str
    name: str
    when: str
    minutes: int
    run: Sequence[str] = ()
    python: Sequence[str] = (PYTHON,)
    over: Sequence[str] = ()
    strict: bool = False
    keep: Mapping[str, str] = field(default_factory=dict)
    keep_if: str = "success"
    label: str = ""
    tests: Sequence[str] = ()

    @property
    def condition(self) -> str:
        """What GitHub asks before it starts it."""
        return LABELLED.format(self.label) if self.label else WHEN[self.when]

    @property
    def runs_on(self) -> str:
        """What kind of runner takes it."""
        return "self-hosted" if self.label else "ubuntu-latest"

    @property
    def commands(self) -> list[str]:
        """What it runs, a step each."""
        sources = {path: (ROOT / path).read_text("utf-8") for path in self.tests}
        locked = [
            f"tools/gpu_lock_exec --count {num_gpus(source, path)} -- .venv/bin/python {path}"
            for path, source in sources.items()
        ]
        return [*self.run, *(["make gpus"] if locked else []), *locked]

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
    what.add_argument("--write", action="store_true", help="write the workflows anew")
    what.add_argument("--check", action="store_true", help="exit 1 where one is not what would be written")
    what.add_argument("--run", metavar="JOB", help="run the commands of a job here, and stop at the first that fails")
    args = parser.parse_args(argv)
    if args.run is not None:
        try:
            return Runner(ROOT).run(ROOT / WORKFLOW, args.run)
        except Refusal as refusal:
            print(refusal, file=sys.stderr)
            return 2
    stale = 0
    for name, expected in written().items():
        path = ROOT / name
        if args.write:
            path.write_text(expected, "utf-8")
        elif (found := path.read_text("utf-8") if path.exists() else "") != expected:
            stale = 1
            print(*unified_diff(found.splitlines(), expected.splitlines(), name, "expected", lineterm=""), sep="\n")
            print(f"{name} is not what its template makes: python tools/workflows.py --write")
    return stale


def written() -> dict[str, str]:
    """The text of each file, by its path."""
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
    known = {
        "labelled": LABELLED.format,
        "python": PYTHON,
        "jobs": list(jobs()),
        "install": INSTALL.read_text("utf-8").rstrip("\n"),
    }
    texts = {
        path: room.from_string((ROOT / template).read_text("utf-8")).render(known).rstrip("\n") + "\n"
        for path, template in TEMPLATES.items()
    }
    return {**texts, SCAFFOLD: texts[FOR_PLUGINS].replace("$", "$$")}


def jobs() -> Iterator[Job]:
    """The jobs of the table, in its order."""
    for name, given in tomllib.loads(TABLE.read_text("utf-8")).items():
        yield Job(id=name, **given)


if __name__ == "__main__":
    sys.exit(main())
