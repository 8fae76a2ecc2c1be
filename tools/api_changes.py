"""What of the public API is broken since the last release, by griffe, and whether the changelog says so.

    .venv/bin/python tools/api_changes.py               # against the newest tag v*
    .venv/bin/python tools/api_changes.py --base v0.1.0 --version 0.2.0

A patch release may break nothing. Until 1.0 a minor release may, if a fragment of the changelog, `changed` or
`removed`, names what is broken. docs/compatibility.md has the promises.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import griffe
from api_snapshot import PUBLIC

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "slime_core"


@dataclass(frozen=True, slots=True)
class Broken:
    """A breakage of a public name."""

    name: str
    """As it is imported: `slime_core.Sample.index`."""
    how: str
    """What griffe says of it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print what is broken; return 1 where the release may not break it, or nothing tells of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", help="the last release's tag (the newest v*)")
    parser.add_argument("--version", default="", help="of the release; without it, a minor one")
    parser.add_argument("--repository", type=Path, default=ROOT, help="where (this checkout)")
    args = parser.parse_args(argv)
    base = args.base or last_release(args.repository)
    if base is None:
        print("there is no release yet: nothing to compare with")
        return 0
    is_patch = args.version.split(".")[:2] == base.removeprefix("v").split(".")[:2]
    told = fragments(args.repository)
    bad = 0
    for each in broken(args.repository, base, modules_of(args.repository)):
        word = each.name.rpartition(".")[2]
        excused = not is_patch and f"`{word}" in told
        bad += not excused
        print(f"{each.name}: {each.how}" + ("" if excused else "  <- not in the changelog" * (not is_patch)))
    if bad:
        why = (
            "a patch release breaks nothing"
            if is_patch
            else "a fragment `changed` or `removed` names each, in backquotes"
        )
        print(f"{bad} breakages since {base} that may not be: {why} (docs/compatibility.md)")
    return 1 if bad else 0


def last_release(repository: Path) -> str | None:
    """The newest tag of a release that this commit has in its history."""
    command = ["git", "-C", str(repository), "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def modules_of(repository: Path) -> Sequence[str]:
    """The public modules that are there."""
    paths = {name: repository / Path(*name.split(".")) for name in PUBLIC}
    return [name for name, path in paths.items() if path.is_dir() or path.with_suffix(".py").exists()]


def fragments(repository: Path) -> str:
    """The changelog's fragments that may tell of a breakage, as one text."""
    paths = [*repository.glob("changelog/*.changed.md"), *repository.glob("changelog/*.removed.md")]
    return "\n".join(path.read_text("utf-8") for path in sorted(paths))


def broken(repository: Path, base: str, public: Sequence[str]) -> Iterator[Broken]:
    """Every breakage of a name in `__all__` of a public module, and of what belongs to it, once."""
    old = griffe.load_git(PACKAGE, ref=base, repo=repository, allow_inspection=False)
    new = griffe.load(PACKAGE, search_paths=[repository], try_relative_path=False, allow_inspection=False)
    promised, gone = set[str](), set[str]()
    for name in public:
        path = name.removeprefix(PACKAGE).removeprefix(".")
        before, after = (_module(package, path) for package in (old, new))
        for export in sorted(str(each) for each in (before.exports if before else None) or ()):
            if after is None or export not in after.members:
                gone.add(f"{name}.{export}")
            elif before is not None:
                promised.add(before[export].canonical_path)
    yield from (Broken(name, "is gone") for name in sorted(gone))
    seen = set[tuple[str, str]]()
    for found in griffe.find_breaking_changes(old, new):
        where, how = found.obj.canonical_path, found.kind.value
        belongs = any(where == name or where.startswith(f"{name}.") for name in promised)
        if belongs and (where, how) not in seen:
            seen.add((where, how))
            yield Broken(where, f"{how}: {found.details}" if found.details else how)


def _module(package: griffe.Object | griffe.Alias, path: str) -> griffe.Object | griffe.Alias | None:
    try:
        return package[path] if path else package
    except KeyError:
        return None


if __name__ == "__main__":
    sys.exit(main())
