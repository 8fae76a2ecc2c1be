"""A release: what it refuses before it changes anything, what it checks, and one made whole from a clone of this."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.tools.repository import ROOT, commit, git


@pytest.fixture(scope="module")
def release() -> Iterator[ModuleType]:
    """The tool, which lies beside what it imports."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import release

        yield release
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A core and a plugin, version 0.1.0, with a fragment."""
    texts = {
        "pyproject.toml": '[project]\nname = "slime-core"\nversion = "0.1.0"\n'
        'optional-dependencies = { local = ["slime-local>=0.1,<0.2"], testing = ["slime-testing==0.1.0"] }\n'
        "[tool.hatch.build.targets.wheel]\npackages = ['slime_core']\n",
        "slime_core/__init__.py": '__version__ = "0.1.0"\n__all__ = []\n',
        "plugins/slime-local/pyproject.toml": '[project]\nname = "slime-local"\nversion = "0.1.0"\n'
        'dependencies = ["slime-core>=0.1,<0.2"]\n[tool.hatch.build.targets.wheel]\npackages = ["slime_local"]\n',
        "plugins/slime-local/slime_local/__init__.py": "",
        "docs/plugins.md": "The bound `slime-core>=0.1,<0.2` is required.\n",
        "changelog/+x.added.md": "X.\n",
    }
    commit(tmp_path, texts)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "prepare", "why"),
    [
        ("0.2", "", "expected three numbers"),
        ("0.0.9", "", "0.0.9 is before 0.1.0"),
        ("0.1.0", "tag", "there is a tag v0.1.0 already"),
        ("0.2.0", "change", "changes that are not committed"),
        ("0.2.0", "no fragment", "changelog/ has no fragment"),
        ("0.2.0", "out of step", "the projects have different versions: 0.0.5, 0.1.0"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    release: ModuleType, repository: Path, capsys: pytest.CaptureFixture[str], version: str, prepare: str, why: str
) -> None:
    plugin = repository / "plugins/slime-local/pyproject.toml"
    match prepare:
        case "tag":
            git(repository, "tag", "v0.1.0")
        case "change":
            plugin.write_text("")
        case "no fragment":
            (repository / "changelog/+x.added.md").unlink()
        case "out of step":
            plugin.write_text(plugin.read_text().replace("0.1.0", "0.0.5"))
    if prepare != "change":
        git(repository, "commit", "-qam", "Prepare", "--allow-empty")
    before = git(repository, "status", "--porcelain")
    assert release.main([version, "--repository", str(repository)]) == 1
    assert why in capsys.readouterr().err
    assert git(repository, "status", "--porcelain") == before


def test_versions_go_in_step_and_bounds_with_the_series(release: ModuleType, repository: Path) -> None:
    release.set_version(repository, "0.1.0", "0.1.1")
    assert "docs/plugins.md" not in git(repository, "status", "--porcelain"), "the series is the same"
    release.set_version(repository, "0.1.1", "0.2.0")
    assert '__version__ = "0.2.0"' in (repository / "slime_core/__init__.py").read_text()
    for path in (repository / "pyproject.toml", repository / "plugins/slime-local/pyproject.toml"):
        assert 'version = "0.2.0"' in path.read_text()
        assert ">=0.2,<0.3" in path.read_text()
    assert '"slime-testing==0.2.0"' in (repository / "pyproject.toml").read_text()
    assert "slime-core>=0.2,<0.3" in (repository / "docs/plugins.md").read_text()
    assert release.bound("1.3.0") == ">=1.3,<2"


@pytest.fixture
def files(repository: Path) -> Path:
    """What a build of it would have left."""
    out = repository / "dist"
    out.mkdir()
    for name in ("slime_core", "slime_local"):
        with zipfile.ZipFile(out / f"{name}-0.1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", "")
            for each in ("METADATA", "RECORD", "WHEEL", "entry_points.txt"):
                wheel.writestr(f"{name}-0.1.0.dist-info/{each}", "")
        (out / f"{name}-0.1.0.tar.gz").write_text("")
    return out


def test_a_wheel_has_what_git_has_and_nothing_else(release: ModuleType, repository: Path, files: Path) -> None:
    checks = release.release_checks
    checks.check_contents(repository, files)
    with zipfile.ZipFile(files / "slime_local-0.1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("tests/test_secret.py", "")
    with pytest.raises(checks.Refusal, match=r"slime-local should not have tests/test_secret\.py"):
        checks.check_contents(repository, files)
    (repository / "slime_core/more.py").write_text("")
    git(repository, "add", "-A")
    with pytest.raises(checks.Refusal, match=r"slime-core lacks slime_core/more\.py"):
        checks.check_contents(repository, files)


@pytest.mark.long
def test_a_release_of_this_checkout_is_made_and_installs(release: ModuleType, tmp_path: Path) -> None:
    """Its version is the next patch: the files, twice the same, in a fresh environment, from `slime.txt`."""
    clone = tmp_path / "clone"
    files = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    commit(clone, {})
    done = subprocess.run(
        [sys.executable, str(clone / "tools/release.py"), "0.1.1", "--light", "--url", "https://example.org/v0.1.1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    out = clone / "dist/release/0.1.1"
    projects = len(release.projects(ROOT))
    assert len(list(out.glob("*.whl"))) == len(list(out.glob("*.tar.gz"))) == projects
    assert len((out / "slime.txt").read_text().splitlines()) == projects
    assert '"slime-core"' in (out / "combination-1.cdx.json").read_text()
    assert "## 0.1.1 (" in (clone / "CHANGELOG.md").read_text()
    assert list((clone / "changelog").glob("+*")) == []
