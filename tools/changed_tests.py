"""Which test files a branch adds, changes or renames, and how many GPUs each asks for: the matrix of a CI job.

    .venv/bin/python tools/changed_tests.py --base origin/main
    [{"file": "tests/e2e/test_short.py", "num_gpus": 8}]

A test file says `NUM_GPUS = 4` at its top level; it is read, not imported. One that says nothing needs none among the
tests that run everywhere, and 8 in a folder `e2e`, as in slime. What is deleted, and what is not a test (`conftest.py`,
helpers), is left out. In a shallow clone the history that is needed is fetched.
"""

import argparse
import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

NAME = "NUM_GPUS"
E2E, E2E_GPUS = "e2e", 8
"""The folder of tests of the whole, and what one needs that does not say."""


class Refusal(Exception):
    """What is wrong, in a sentence."""


@dataclass(frozen=True, slots=True)
class ChangedTest:
    """A row of the matrix."""

    file: str
    """Its path in the repository, with slashes."""
    num_gpus: int
    """How many it asks for."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the matrix; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", default="origin/main", help="the branch to compare with (%(default)s)")
    parser.add_argument("--repository", type=Path, default=Path.cwd(), help="where (this folder)")
    args = parser.parse_args(argv)
    try:
        print(json.dumps([asdict(test) for test in changed_tests(args.repository, args.base)]))
    except Refusal as refusal:
        print(f"changed_tests: {refusal}", file=sys.stderr)
        return 2
    return 0


def changed_tests(repository: Path, base: str) -> list[ChangedTest]:
    """The test files that differ from where the branch left `base`, by path.

    Raises:
        Refusal: the two have no commit in common, or a file's number of GPUs cannot be read.
    """
    names = _git(repository, "diff", "-z", "--name-only", "--diff-filter=AMRT", _left_at(repository, base), "HEAD")
    paths = sorted(name for name in names.split("\0") if is_test(name))
    return [ChangedTest(path, num_gpus(_git(repository, "show", f"HEAD:{path}"), path)) for path in paths]


def is_test(path: str) -> bool:
    """Whether pytest would collect a file of this name."""
    name = PurePosixPath(path).name
    return name.startswith("test_") and name.endswith(".py")


def num_gpus(source: str, path: str) -> int:
    """What a file says, or what its place says where it does not.

    Raises:
        Refusal: it is not Python, or says what is not a natural number.
    """
    try:
        said = list(_assigned(ast.parse(source)))
    except SyntaxError as error:
        raise Refusal(f"{path}, line {error.lineno}: {error.msg}") from None
    if not said:
        return E2E_GPUS if E2E in PurePosixPath(path).parent.parts else 0
    match said[-1]:
        case ast.Constant(value=int(number)) if number >= 0 and not isinstance(number, bool):
            return number
        case other:
            told = f"{NAME} = {ast.unparse(other)}; expected a number such as 8: the file is not imported"
            raise Refusal(f"{path}, line {other.lineno}: {told}")


def _assigned(module: ast.Module) -> Iterator[ast.expr]:
    for node in module.body:
        match node:
            case ast.Assign(targets=targets, value=value):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                names = [name]
            case _:
                continue
        if NAME in names:
            yield value


def _left_at(repository: Path, base: str) -> str:
    """The commit from which both came."""
    for fetched in (False, True):
        if fetched:
            remote, _, branch = base.partition("/")
            deepen = ["--unshallow"] if _is_shallow(repository) else []
            _git(repository, "fetch", "-q", *deepen, remote, f"+{branch}:refs/remotes/{base}")
        try:
            return _git(repository, "merge-base", base, "HEAD").strip()
        except Refusal as refusal:
            if fetched or "/" not in base:
                told = f"{base} and HEAD have no commit in common that this clone knows"
                raise Refusal(f"{told}: {refusal}") from None
    raise AssertionError("both rounds return or raise")


def _is_shallow(repository: Path) -> bool:
    return _git(repository, "rev-parse", "--is-shallow-repository").strip() == "true"


def _git(repository: Path, *argv: str) -> str:
    done = subprocess.run(["git", "-C", str(repository), *argv], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refusal(f"git {' '.join(argv)}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
