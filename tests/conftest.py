"""What all tests share: one hypothesis profile, one tiny model, the command line called in this process, bad disks."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from slime_core.config import write_toml
from slime_core.processes.limits import descendants
from slime_core.roles import Draw
from slime_core.sample import Group, Json, Sample
from slime_core.telemetry import GeneratedGroups
from slime_view.samples.store import SampleStore

WriteSamples = Callable[..., None]

NO_STATE: dict[str, Json] = {"step": 0, "metrics_position": 0, "plugins": {}, "config": {}}
"""What the state of every checkpoint has."""

DIGITS = '''
from slime_core import RewardContext, Sample, Score


async def digits(sample: Sample, ctx: RewardContext) -> Score:
    """Share of digits in the response: an untrained model gets some, so that groups have something to learn."""
    return Score(sum(letter.isdigit() for letter in sample.response) / max(1, len(sample.response)))
'''


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's model and tokenizer, untrained."""
    pytest.importorskip("torch", reason="the model of these tests is made with torch")
    from slime_local.demo.tiny import write_tiny_model

    directory = tmp_path_factory.mktemp("models") / "tiny"
    write_tiny_model(directory=directory, task="chain", seed=0)
    return directory


def workers(name: str = "*") -> list[int]:
    """What runs below this process for a worker group, by the log that it writes: `workers("trainer-1")`."""
    found = []
    for pid in descendants(os.getpid()):
        with suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/fd/1").readlink().match(f"{name}.log"):
                found.append(pid)
    return found


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    def json(self) -> object:
        """Its output, as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Slime:
    """`slime("train", "run.toml", "--lr", "1e-3")`, in this process."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object) -> Ran:
        """Run a command, whatever becomes of it."""
        from slime_core.cli import run_cli

        self.capsys.readouterr()
        code = run_cli([str(argument) for argument in arguments])
        return Ran(code, *self.capsys.readouterr())

    def ok(self, *arguments: object) -> Ran:
        """Run a command that ends well."""
        ran = self(*arguments)
        assert ran.code == 0, ran.out + ran.err
        return ran

    def refused(self, *arguments: object) -> str:
        """What a command says that refuses its input."""
        ran = self(*arguments)
        assert ran.code == 2, ran.out + ran.err
        return ran.err


Install = Callable[..., None]
"""The fixture `install_plugin`."""


@pytest.fixture
def slime(capsys: pytest.CaptureFixture[str]) -> Slime:
    """The command line, called in this process."""
    return Slime(capsys)


@pytest.fixture
def project(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> "Project":
    """A user's project: the working directory, with prompts, a reward and a run file of a few seconds."""
    monkeypatch.chdir(tmp_path)
    made = Project(tmp_path, tiny_model)
    made.write_prompts("prompts.jsonl", 8)
    (tmp_path / "rewards.py").write_text(DIGITS)
    made.write_run()
    return made


@dataclass(frozen=True)
class Project:
    """Files of a small run."""

    root: Path
    model: Path

    @property
    def run(self) -> Path:
        """The run folder of run.toml."""
        return self.root / "runs" / "run"

    def write_prompts(self, name: str, count: int) -> Path:
        """Sums, as rows of question and answer."""
        rows = [{"question": f"What is {number}+1?", "answer": str(number + 1)} for number in range(count)]
        return self.write_rows(name, rows)

    def write_rows(self, name: str, rows: Iterable[Json]) -> Path:
        """A jsonl file."""
        path = self.root / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def write_run(self, **changes: Json) -> Path:
        """run.toml: 2 rollouts of 4 groups of 4 short samples; None leaves a key out."""
        values: dict[str, Json] = {
            "hf_checkpoint": str(self.model),
            "prompt_data": "prompts.jsonl",
            "input_key": "question",
            "label_key": "answer",
            "apply_chat_template": True,
            "rollout_batch_size": 4,
            "n_samples_per_prompt": 4,
            "num_rollout": 2,
            "rollout_max_response_len": 8,
            "lr": 1e-3,
            "reward": {"use": "./rewards.py:digits"},
            "engine": {"local": {"workers": 1}},
            "trainer": {"local": {"ranks": 1}},
        }
        path = self.root / "run.toml"
        path.write_text(write_toml(values | changes))
        return path


@pytest.fixture
def tiny_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty disk of 2 MiB, or of the size given by parametrizing; skips where mounting is not allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not _mount("-t", "tmpfs", "-o", f"size={getattr(request, 'param', '2m')}", "tmpfs", str(folder)):
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def remount() -> Callable[[Path, str], None]:
    """`remount(tiny_disk, "4m")`: give it another size."""

    def resize(folder: Path, size: str) -> None:
        assert _mount("-o", f"remount,size={size}", str(folder))

    return resize


@pytest.fixture
def read_only_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that this user cannot write to; root ignores permissions and gets a read-only mount."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    if os.geteuid():
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)
        return
    if not _mount("-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)):
        pytest.skip("this root may not mount, and ignores permissions")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def write_samples() -> "WriteSamples":
    """Writes a samples folder: groups by rollout, and samples by data set by evaluation."""

    def write(
        directory: Path,
        rollouts: Mapping[int, Sequence[Group]] | None = None,
        evals: Mapping[int, Mapping[str, Sequence[Sample]]] | None = None,
    ) -> None:
        async def run() -> None:
            with SampleStore(directory) as store:
                for rollout_id, groups in (rollouts or {}).items():
                    await store.write(rollout_id, GeneratedGroups(groups, [], {}), Draw(groups, [1.0] * len(groups)))
                for rollout_id, samples in (evals or {}).items():
                    await store.write_eval(rollout_id, samples)
                await store.flush()

        asyncio.run(run())

    return write


def _mount(*arguments: str) -> bool:
    program = shutil.which("mount")
    return (
        program is not None and not subprocess.run([program, *arguments], capture_output=True, check=False).returncode
    )
