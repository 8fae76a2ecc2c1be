"""Make a release: the versions of the core and its plugins in step, the changelog, wheels and sdists, and their checks.

    make release VERSION=0.2.0 URL=https://example.org/slime/v0.2.0

What is to be published lies in dist/release/VERSION then: wheels, sdists, bills of material, and `slime.txt`: pip's
constraints, which give each name of ours an address and a hash. `pip install -c slime.txt slime-core` asks no index for
them, where anybody can have those names. Nothing is published, committed or tagged here; what to type is printed.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import api_changes
import release_checks
from release_checks import Refusal

ROOT = Path(__file__).resolve().parents[1]
CORE = "slime-core"
PINNED = (CORE, "slime-testing")
"""The kit and the core require each other in the same version."""


def main(argv: Sequence[str] | None = None) -> int:
    """Make it; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", help="such as 0.2.0")
    parser.add_argument("--url", default="", help="the folder where the files will lie (their folder on this machine)")
    parser.add_argument("--repository", type=Path, default=ROOT, help="where (this checkout)")
    parser.add_argument("--light", action="store_true", help="leave out the combinations that bring torch")
    args = parser.parse_args(argv)
    try:
        release(args.repository.resolve(), args.version, args.url.rstrip("/"), light=args.light)
    except Refusal as refusal:
        print(f"release: {refusal}", file=sys.stderr)
        return 1
    return 0


def release(root: Path, version: str, url: str, *, light: bool) -> None:
    """All of it, in order.

    Raises:
        Refusal: something is not as a release must be; before the first change, where it can be seen before.
    """
    old = version_of(root)
    _check_before(root, old, version)
    if api_changes.main(["--repository", str(root), "--version", version]):
        raise Refusal("the public API breaks what this release may not break; see above")
    changed = set_version(root, old, version)
    _run([sys.executable, "-m", "towncrier", "build", "--yes", "--version", version, "--dir", str(root)], root)
    print(f"{old} -> {version} in {len(changed)} files, and the changelog", flush=True)

    out = root / "dist/release" / version
    shutil.rmtree(out, ignore_errors=True)
    build(root, out)
    release_checks.check_contents(root, out)
    _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, sorted(out.iterdir()))], root)
    with tempfile.TemporaryDirectory(prefix="again-") as again:
        build(root, Path(again))
        release_checks.check_reproduced(out, Path(again))
    (out / "slime.txt").write_text(constraints(out, url), "utf-8")
    with tempfile.TemporaryDirectory(prefix="wheels-") as folder:
        local = Path(folder) / "slime.txt"
        local.write_text(constraints(out, ""), "utf-8")  # what is checked is what is here, and not at its address yet
        for number, combination in enumerate(release_checks.combinations(root, light=light), 1):
            release_checks.check_install(root, combination, local, version, out / f"combination-{number}.cdx.json")
    print(f"\n{out} has {len(list(out.iterdir()))} files. Next:\n")
    print(f"  git commit -am 'Release {version}' && git tag v{version} && git push origin HEAD v{version}")
    print(f"  put all of them {f'at {url}' if url else 'where users find them, and say so by URL=...'}")


def version_of(root: Path) -> str:
    """What pyproject.toml says now."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def projects(root: Path) -> list[Path]:
    """The folders of the core and its plugins."""
    return [root, *(path.parent for path in sorted(root.glob("plugins/*/pyproject.toml")))]


def set_version(root: Path, old: str, new: str) -> list[Path]:
    """Write it into every project, and the series into what bounds it; return the files that changed."""
    changed = []
    for folder in projects(root):
        changed += _replaced(folder / "pyproject.toml", f'version = "{old}"', f'version = "{new}"')
        for name in PINNED:
            changed += _replaced(folder / "pyproject.toml", f'"{name}=={old}"', f'"{name}=={new}"')
    changed += _replaced(root / "slime_core/__init__.py", f'__version__ = "{old}"', f'__version__ = "{new}"')
    before, after = bound(old), bound(new)
    if before != after:
        listed = _run(["git", "ls-files", "-z"], root).split("\0")
        for name in listed:
            if Path(name).suffix in (".toml", ".md", ".py", ".txt") and (root / name).is_file():
                changed += _replaced(root / name, before, after)
    return sorted(set(changed))


def bound(version: str) -> str:
    """What a plugin of this series asks of the core: until 1.0, a minor release may change the plugin API."""
    major, minor = map(int, version.split(".")[:2])
    return f">={major}.{minor},<{major + 1}" if major else f">=0.{minor},<0.{minor + 1}"


def build(root: Path, out: Path) -> None:
    """An sdist of each project, and a wheel from that, dated as the last commit."""
    date = _run(["git", "log", "-1", "--format=%ct"], root).strip()
    for folder in projects(root):
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(folder)]
        _run(command, root, {**os.environ, "SOURCE_DATE_EPOCH": date})


def constraints(out: Path, url: str) -> str:
    """`slime.txt`: an address and a hash for each name of ours."""
    lines = []
    for wheel in sorted(out.glob("*.whl")):
        name = wheel.name.partition("-")[0].replace("_", "-")
        address = f"{url}/{wheel.name}" if url else wheel.resolve().as_uri()
        lines.append(f"{name} @ {address}#sha256={hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return "".join(lines)


def _check_before(root: Path, old: str, version: str) -> None:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Refusal(f"VERSION={version}: expected three numbers, such as 0.2.0")
    tags = _run(["git", "tag", "--list", "v*"], root).split()
    if f"v{version}" in tags:
        raise Refusal(f"there is a tag v{version} already")
    if tuple(map(int, version.split("."))) < tuple(map(int, old.split("."))):
        raise Refusal(f"{version} is before {old}, which pyproject.toml has")
    if changed := _run(["git", "status", "--porcelain"], root):
        raise Refusal(f"the checkout has changes that are not committed:\n{changed}")
    if not list(root.glob("changelog/+*.md")):
        raise Refusal("changelog/ has no fragment: nothing to release")
    told = {
        tomllib.loads((each / "pyproject.toml").read_text("utf-8"))["project"]["version"] for each in projects(root)
    }
    if told != {old}:
        raise Refusal(f"the projects have different versions: {', '.join(sorted(told))}")


def _replaced(path: Path, old: str, new: str) -> list[Path]:
    text = path.read_text("utf-8")
    if old == new or old not in text:
        return []
    path.write_text(text.replace(old, new), "utf-8")
    return [path]


def _run(command: Sequence[str], folder: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refusal(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
