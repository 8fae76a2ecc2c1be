"""What of the public API is broken since the last release, by griffe, and whether the changelog says so.

    .venv/bin/python tools/api_changes.py               # against the newest tag v*
    .venv/bin/python tools/api_changes.py --base v0.1.0 --version 0.2.0

A patch release may break nothing. Until 1.0 a minor release may, if a fragment of the changelog, `changed` or
`removed`, names what is broken. docs/compatibility.md has the promises.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import griffe
from api_snapshot import PUBLIC, exports_of, folder_of, root_of

ROOT = Path(__file__).resolve().parents[1]


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


def modules_of(repository: Path) -> Mapping[str, Sequence[str]]:
    """The public modules that are there, with their public names; without names, all that the module exports."""
    paths = {name: folder_of(root_of(name), repository) / Path(*name.split(".")) for name in PUBLIC}
    there = (name for name, path in paths.items() if path.is_dir() or path.with_suffix(".py").exists())
    return {name: PUBLIC[name] for name in there}


def fragments(repository: Path) -> str:
    """The changelog's fragments that may tell of a breakage, as one text."""
    paths = [*repository.glob("changelog/*.changed.md"), *repository.glob("changelog/*.removed.md")]
    return "\n".join(path.read_text("utf-8") for path in sorted(paths))


def broken(repository: Path, base: str, public: Mapping[str, Sequence[str]]) -> Iterator[Broken]:
    """Every breakage of a public name, and of its members, once."""
    roots = sorted({root_of(name) for name in public})
    old, new = griffe.ModulesCollection(), griffe.ModulesCollection()
    for root in roots:
        _load_old(root, repository, base, old)
        folder = folder_of(root, repository)
        griffe.load(
            root, search_paths=[folder], try_relative_path=False, allow_inspection=False, modules_collection=new
        )
    promised, gone = set[str](), set[str]()
    for name, chosen in public.items():
        before, after = (_module(collection, name) for collection in (old, new))
        exports = sorted(exports_of(before)) if before else []
        if isinstance(before, griffe.Module):
            before.exports = [*exports]  # griffe compares exported names, and knows none of a computed `__all__`
        for export in (each for each in exports if not chosen or each in chosen):
            if after is None or export not in after.members:
                gone.add(f"{name}.{export}")
            elif before is not None and export in before.members:
                promised.add(before[export].canonical_path)
    yield from (Broken(name, "is gone") for name in sorted(gone))
    seen = set[tuple[str, str]]()
    changes = (each for root in roots if root in old for each in griffe.find_breaking_changes(old[root], new[root]))
    for found in changes:
        where, how = found.obj.canonical_path, found.kind.value
        belongs = any(where == name or where.startswith(f"{name}.") for name in promised)
        if belongs and (where, how) not in seen:
            seen.add((where, how))
            yield Broken(where, f"{how}: {found.details}" if found.details else how)


def _load_old(package: str, repository: Path, base: str, collection: griffe.ModulesCollection) -> None:
    """Add a package of the last release to the collection, unless that release has none of this name."""
    folder = folder_of(package, repository).relative_to(repository)
    path = (folder / package).as_posix()
    found = subprocess.run(["git", "-C", str(repository), "cat-file", "-e", f"{base}:{path}"], capture_output=True)
    if found.returncode == 0:
        griffe.load_git(
            package,
            ref=base,
            repo=repository,
            search_paths=[folder],
            allow_inspection=False,
            modules_collection=collection,
        )


def _module(collection: griffe.ModulesCollection, name: str) -> griffe.Object | griffe.Alias | None:
    try:
        found: griffe.Object | griffe.Alias = collection[name]
    except KeyError:
        return None
    return found


if __name__ == "__main__":
    sys.exit(main())
