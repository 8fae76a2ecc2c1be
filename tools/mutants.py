"""Mutants of slime_core/train: small changes of its code, each of which some test must notice.

    .venv/bin/python tools/mutants.py                   all files; writes docs/mutants.md; exit 1 where a goal is missed
    .venv/bin/python tools/mutants.py groups split      these files alone; writes nothing

The mutants are mutmut's. It runs those of functions itself; those of constants, class bodies and decorated functions
run here (tools/mutants_outside.py). tools/mutants.toml says of every survivor why it is no fault of the tests.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from mutants_outside import exit_status, mutants_of
from mutmut.stats import status_by_exit_code

ROOT = Path(__file__).resolve().parent.parent
CODE = Path("slime_core/train")
TESTS = "tests/train"
PAGE = ROOT / "docs" / "mutants.md"
REASONS = ROOT / "tools" / "mutants.toml"
START, END = "<!-- written by tools/mutants.py -->\n", "<!-- end -->\n"
GOAL = 0.95
"""Share of each run's mutants that must be killed."""
CAUGHT = {"killed", "timeout", "segfault"}
WARM = ("numpy", "torch", "transformers", "hypothesis.strategies", "pydantic", "safetensors.torch")
"""Imported before processes are forked, which then start in no time. Nothing of slime_core may be."""


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that no test noticed."""

    file: str
    """Name of the file in slime_core/train."""
    was: str
    """The changed lines."""
    now: str
    """What they became."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of the mutants of one file."""

    file: str
    """Its name."""
    mutants: int
    """How many there were."""
    survivors: Sequence[Survivor]
    """Those that no test noticed."""


def main(names: Sequence[str]) -> int:
    """Run, report, and return the exit status."""
    os.chdir(ROOT)
    files = [CODE / f"{name}.py" for name in names] or sorted(CODE.glob("*.py"))
    patterns = [f"slime_core.train.{path.stem}.*" for path in files] if names else []
    shutil.rmtree("mutants", ignore_errors=True)  # what mutmut remembers there knows nothing of new tests
    subprocess.run([sys.executable, "-m", "mutmut", "run", "--max-children", "1", *patterns], check=True)
    for module in WARM:
        importlib.import_module(module)
    if exit_status(None, [TESTS]) != 0:
        raise SystemExit(f"{TESTS} fails as it is: mutants say nothing")
    found = [_together(path.name, *_of_functions(path), *_outside_of_functions(path)) for path in files]
    reasons = _reasons()
    unexplained = [each for figures in found for each in figures.survivors if each not in reasons]
    total, survived = sum(each.mutants for each in found), sum(len(each.survivors) for each in found)
    share = 1 - survived / max(1, total)
    print("\n".join(f"{each.file:20} {each.mutants:5} mutants {len(each.survivors):4} survived" for each in found))
    print(f"{share:.1%} of {total} killed")
    for each in unexplained:
        print(f"no reason given: {each.file}\n  was {each.was}\n  now {each.now}")
    if not names:
        before, _, rest = PAGE.read_text("utf-8").partition(START)
        PAGE.write_text(before + START + _page(found, reasons) + END + rest.partition(END)[2], "utf-8")
    return 1 if unexplained or share < GOAL else 0


def _of_functions(path: Path) -> tuple[int, list[Survivor]]:
    """Number of mutants that mutmut ran of a file, and which survived."""
    results = json.loads(Path("mutants", f"{path}.meta").read_text("utf-8"))["exit_code_by_key"]
    lost = [name for name, code in results.items() if status_by_exit_code[code] not in CAUGHT]
    return len(results), [Survivor(path.name, *_shown(name)) for name in lost]


def _shown(name: str) -> tuple[str, str]:
    """Lines of a mutant, as they were and as they became."""
    command = [sys.executable, "-m", "mutmut", "show", name]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in text.splitlines() if not line.startswith(("---", "+++"))]
    was, now = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return was, now


def _outside_of_functions(path: Path) -> tuple[int, list[Survivor]]:
    """The same of constants, class bodies and decorated functions. The file's own tests go first."""
    own = Path(TESTS, f"test_{path.stem}.py")
    tests = [str(own), TESTS] if own.exists() else [TESTS]  # collected only where its own let it live
    lost, number = [], 0
    for number, mutant in enumerate(mutants_of(path), 1):
        survives = all(exit_status(mutant, [each]) == 0 for each in tests)
        if survives:
            lost.append(Survivor(path.name, mutant.was, mutant.now))
        print(f"{path.name} {number} {'survived' if survives else 'killed'}: {mutant.now}", flush=True)
    return number, lost


def _together(file: str, one: int, of_one: list[Survivor], other: int, of_other: list[Survivor]) -> Figures:
    return Figures(file, one + other, [*of_one, *of_other])


def _reasons() -> Mapping[Survivor, str]:
    """Why each survivor that is known changes nothing that a test should see."""
    classes = tomllib.loads(REASONS.read_text("utf-8"))["survivors"]
    return {Survivor(each["file"], was, now): each["why"] for each in classes for was, now in each["mutants"]}


def _page(found: Sequence[Figures], reasons: Mapping[Survivor, str]) -> str:
    return "\n".join(["", *_table(found), "", *_list(found, reasons), ""])


def _table(found: Sequence[Figures]) -> Iterator[str]:
    yield "| File | Mutants | Killed | Share |"
    yield "| --- | ---: | ---: | ---: |"
    rows = [(f"`{each.file}`", each.mutants, len(each.survivors)) for each in found if each.mutants]
    rows.append(("all", sum(count for _, count, _ in rows), sum(lost for _, _, lost in rows)))
    for name, count, lost in rows:
        yield f"| {name} | {count} | {count - lost} | {1 - lost / count:.1%} |"


def _list(found: Sequence[Figures], reasons: Mapping[Survivor, str]) -> Iterator[str]:
    yield "| Survivor | Why no test should see it |"
    yield "| --- | --- |"
    for figures in found:
        for each in figures.survivors:
            was, now = (f"<code>{escape(text).replace('|', '&#124;')}</code>" for text in (each.was, each.now))
            yield f"| `{each.file}`: {was} became {now} | {reasons.get(each, 'not known yet')} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
