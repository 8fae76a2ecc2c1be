"""A stranger's repository: what `slime plugins new` wrote, from wheels alone; its CI runs here, without a network. What
plays the public index has another project's slime-core, newer than ours, which nobody must get.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from slime_core import __version__
from tests.strangers.conftest import ROOT, Room, checked, environment
from tests.tables import table

pytestmark = pytest.mark.long
RUNNER = ROOT / "tools/runner.py"
LOCAL = 'cores: \'["slime.txt"]\'\n      find-links: ./index\n      no-index: "1"\n'
"""The inputs of a repository that brings its own wheels."""


def wheel(folder: Path, name: str, version: str, *needs: str) -> Path:
    """A wheel with one module, which says whose it is."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {need}" for need in needs),
    ]
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name.replace('-', '_')}/__init__.py", "THEIRS = True\n")
        file.writestr(f"{stem}.dist-info/METADATA", "\n".join(metadata) + "\n")
        file.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{stem}.dist-info/RECORD", "")
    return path


@pytest.fixture(scope="module")
def index(room: Room) -> Path:
    """What the public index has for them: what the core and the kit need, and the other slime-core."""
    folder = room.folder / "index"
    ours = sorted(room.folder.glob("*/slime_*.whl"))
    tools = ("editables", "hatchling>=1.27", "pytest>=8.4")  # editables: what hatchling installs `-e` with
    download = [sys.executable, "-m", "pip", "download", "--quiet", "-d", str(folder)]
    checked([*download, *map(str, ours), *tools], cwd=room.folder)
    for each in ours:
        (folder / each.name).unlink()
    for version in ("0.0.1", __version__, "0.1.99", "0.2.0"):
        wheel(folder, "slime-core", version)
    wheel(folder, "slime-reward-older", "1.0", "slime-core>=0.1,<0.2")
    wheel(folder, "slime-reward-newer", "1.0", "slime-core>=0.2,<0.3")
    return folder


@pytest.fixture
def repository(room: Room, index: Path, tmp_path: Path) -> Path:
    """A new plugin in a repository of its own, with the index's files in it."""
    assert room.run("slime", "plugins", "new", "reward", "words", "--into", tmp_path).returncode == 0
    made = tmp_path / "slime-reward-words"
    (made / "index").symlink_to(index)
    ci = made / ".github/workflows/ci.yml"
    written = ci.read_text("utf-8")
    edited = re.sub(r"cores: .*\n", LOCAL, written).replace('["3.11", "3.13"]', '["3.11"]')
    assert edited.count("./index") == 1
    ci.write_text(edited, "utf-8")
    return made


def run_ci(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    nowhere = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    command = [sys.executable, str(RUNNER), *arguments, "--repository", str(repository)]
    rooms = ["--rooms", str(repository / "rooms")]
    return subprocess.run([*command, *rooms], env=environment() | nowhere, capture_output=True, text=True, check=False)


def core_of(repository: Path) -> str:
    """The slime-core that the first environment has: its version, and whether it is the other project's."""
    python = next((repository / "rooms").glob("*/bin/python"))
    code = "import slime_core as s, importlib.metadata as m; print(m.version('slime-core'), hasattr(s, 'THEIRS'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_its_workflow_is_green_from_wheels_alone(repository: Path) -> None:
    done = run_ci(repository, ".github/workflows/ci.yml", "contracts")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "slime-reward-words 0.1.0" in done.stdout, "the kit's own report"
    assert core_of(repository) == f"{__version__} False"


def test_a_failing_plugin_fails_it(repository: Path) -> None:
    module = repository / "slime_reward_words/plugin.py"
    module.write_text(module.read_text("utf-8").replace('SLIME_API = "1"', 'SLIME_API = "0"'), "utf-8")
    done = run_ci(repository, ".github/workflows/ci.yml", "contracts")
    assert done.returncode == 1
    assert "plugin API 0" in done.stdout


def test_the_action_does_the_same_from_a_folder_of_wheels(room: Room, repository: Path) -> None:
    (repository / "wheels").symlink_to(next(room.folder.glob("*/slime_core-*.whl")).parent)
    action = repository / ".github/actions/plugin-contracts/action.yml"
    action.parent.mkdir(parents=True)
    action.write_text((ROOT / ".github/actions/plugin-contracts/action.yml").read_text("utf-8"), "utf-8")
    (repository / ".github/workflows/mine.yml").write_text(
        """
on: push
jobs:
  mine:
    runs-on: ubuntu-latest
    env: {PIP_NO_INDEX: "1", PIP_FIND_LINKS: ./index}
    steps:
      - uses: actions/setup-python@v5
        with: {python-version: "3.11"}
      - uses: ./.github/actions/plugin-contracts
        with: {plugin: slime-reward-words, core: ./wheels}
""",
        "utf-8",
    )
    done = run_ci(repository, ".github/workflows/mine.yml", "mine")
    assert done.returncode == 0, done.stdout + done.stderr
    assert core_of(repository) == f"{__version__} False"


@table("core", ["", "slime-core", f"slime-core=={__version__}"])
def test_a_core_by_bare_name_is_refused_before_anything_is_installed(repository: Path, core: str) -> None:
    ci = repository / ".github/workflows/ci.yml"
    ci.write_text(re.sub(r"cores: .*", f"cores: '[\"{core}\"]'", ci.read_text("utf-8")), "utf-8")
    done = run_ci(repository, ".github/workflows/ci.yml", "contracts")
    assert done.returncode == 2
    assert f"SLIME_CORE is '{core}'; expected the slime.txt of a release" in done.stderr
    assert not list((repository / "rooms").glob("*/lib/*/site-packages/slime_core"))


@table("name", ["older", "newer"])
def test_a_plugin_from_an_index_never_brings_the_other_slime_core(room: Room, index: Path, name: str) -> None:
    """The line that errors advise; the newer plugin wants a core that only the other project has."""
    printed = room.run("python", "-c", f"import slime_core.catalog as c; print(c.pip_command('slime-reward-{name}'))")
    _, _, wanted = printed.stdout.strip().split(" ", 2)
    pip = [sys.executable, "-m", "pip", "--python", str(room.folder / "venv/bin/python"), "install", "--no-index"]
    bare = [*pip, "--dry-run", "--ignore-installed", "--find-links", str(index), f"slime-reward-{name}"]
    taken = subprocess.run(bare, env=environment(), capture_output=True, text=True, check=True).stdout
    assert f"slime-core-{'0.1.99' if name == 'older' else '0.2.0'}" in taken, "what pip does by itself"
    for option in ((), ("--upgrade",)):
        done = subprocess.run(
            [*pip, "--dry-run", "--find-links", str(index), *option, *wanted.split()],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == (0 if name == "older" else 1), done.stderr
        assert ("conflicting dependencies" in done.stderr) == (name == "newer")
        assert "slime-core" not in done.stdout.partition("Would install")[2]
