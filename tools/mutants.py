"""Mutants: small changes of the code, each of which some test must notice. All of the training formulas, samples else.

    .venv/bin/python tools/mutants.py                       all rooms; writes docs/mutants.md; 1 where a goal is missed
    .venv/bin/python tools/mutants.py run                   one room, and its row of docs/mutants.md
    .venv/bin/python tools/mutants.py groups run/ledger     these files alone, the first of train; writes nothing
    .venv/bin/python tools/mutants.py --count 5 run         a smaller sample of a room

The mutants are mutmut's. The room `train` is slime_core/batching and the package slime_train. mutmut itself runs its
mutants of functions; those of constants, class bodies and decorated functions run here (tools/mutants_outside.py). Of
the other rooms a sample runs (tools/mutants_sample.py). tools/mutants.toml gives the reasons why survivors are no fault
of the tests.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from mutants_outside import exit_status, mutants_of
from mutants_page import ROOT, Figures, Survivor, reasons, share_killed, write
from mutants_processes import started
from mutants_record import ROOMS, code_of
from mutants_sample import COUNT, SEED, sampled
from mutmut.stats import status_by_exit_code

PACKAGES = (Path("slime_core"), Path("plugins/slime-train/slime_train"))
"""mutmut names a mutant by its path: both packages are copied into one folder."""
CODE = (PACKAGES[0] / "batching", PACKAGES[1])
NO_FORMULAS = {"__init__", "command", "finetuning", "plugin", "rollout_only", "train_only"}
"""Modules of slime_train with no formulas: loops, a command and a list of choices."""
TREE = Path(".cache/mutmut")
"""Where mutmut runs."""
TESTS = "tests/train"
GOAL, GOAL_OF_SAMPLES = 0.95, 0.9
"""Shares of a run's mutants that must be killed."""
CAUGHT = {"killed", "timeout", "segfault"}
WARM = ("numpy", "torch", "transformers", "hypothesis.strategies", "pydantic", "safetensors.torch")
"""Imported before processes are forked, which then start in no time. Nothing of slime_core may be."""


def main(arguments: Sequence[str]) -> int:
    """Run, report, and return the exit status."""
    parser = ArgumentParser(prog="make mutants")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", type=int, default=COUNT)
    given = parser.parse_args(arguments)
    names = given.names
    os.chdir(ROOT)
    rooms = [name for name in names if name in ("train", *ROOMS)] or ([] if names else ["train", *ROOMS])
    alone = [name for name in names if name not in rooms]
    status = 0
    if "train" in rooms or any("/" not in name for name in alone):
        found = _of_train([name for name in alone if "/" not in name] if "train" not in rooms else [])
        status |= _told(found, GOAL, every_reason=True)
        if "train" in rooms:
            write("train", found)
    parts = [(room, _files(room)) for room in ROOMS if room in rooms]
    parts += [("", files)] if (files := [name for name in alone if "/" in name]) else []
    for module in WARM:
        importlib.import_module(module)
    for room, files in parts:
        passed = started()
        found = sampled(files, given.count)
        status |= _told(found, GOAL_OF_SAMPLES, every_reason=False) | (len(found) < len(files))
        print(f"it took {passed()}")
        if room:
            write(room, found, f"at most {given.count} a file, seed {SEED}")
    return status


def _files(room: str) -> list[str]:
    paths = sorted(code_of(room))
    return [path.relative_to("slime_core").with_suffix("").as_posix() for path in paths]


def _told(found: Sequence[Figures], goal: float, *, every_reason: bool) -> int:
    """Print what came of files; 1 where a goal is missed."""
    known, share = reasons(), share_killed(found)
    unexplained = [each for figures in found for each in figures.survivors if each not in known]
    print("\n".join(f"{each.file:30} {each.mutants:5} mutants {len(each.survivors):4} survived" for each in found))
    print(f"{share:.1%} of {sum(each.mutants for each in found)} killed")
    for each in unexplained:
        print(f"no reason given: {each.file}\n  was {each.was}\n  now {each.now}")
    return 1 if share < goal or (every_reason and unexplained) else 0


def _of_train(names: Sequence[str]) -> list[Figures]:
    """All mutants of these files of the room `train`, or of all its files."""
    every = sorted(path for folder in CODE for path in folder.rglob("*.py") if path.stem not in NO_FORMULAS)
    files = [path for path in every if path.stem in names] if names else every
    patterns = [f"{'.'.join(_in_tree(path).with_suffix('').parts)}.*" for path in files] if names else []
    _copy_tree()
    subprocess.run([sys.executable, "-m", "mutmut", "run", "--max-children", "1", *patterns], cwd=TREE, check=True)
    for module in WARM:
        importlib.import_module(module)
    if exit_status(None, [TESTS]) != 0:
        raise SystemExit(f"{TESTS} fails as it is: mutants say nothing")
    return [_together(path.name, *_of_functions(path), *_outside_of_functions(path)) for path in files]


def _copy_tree() -> None:
    """Fill the folder where mutmut runs; what it remembers there knows nothing of new tests."""
    shutil.rmtree(TREE, ignore_errors=True)
    without = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(package, TREE / package.name, ignore=without)
    shutil.copytree("tests", TREE / "tests", ignore=without)
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy2(name, TREE / name)


def _in_tree(path: Path) -> Path:
    """The path of a file, from the folder where mutmut runs."""
    return next(path.relative_to(package.parent) for package in PACKAGES if path.is_relative_to(package))


def _of_functions(path: Path) -> tuple[int, list[Survivor]]:
    """Number of mutants that mutmut ran of a file, and which survived."""
    results = json.loads(Path(TREE, "mutants", f"{_in_tree(path)}.meta").read_text("utf-8"))["exit_code_by_key"]
    lost = [name for name, code in results.items() if status_by_exit_code[code] not in CAUGHT]
    return len(results), [Survivor(path.name, *_shown(name)) for name in lost]


def _shown(name: str) -> tuple[str, str]:
    """Lines of a mutant, as they were and as they became."""
    command = [sys.executable, "-m", "mutmut", "show", name]
    text = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True).stdout
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
