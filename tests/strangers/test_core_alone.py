"""The core and what it requires, alone with a stranger's plugin: a run is planned, trained and resumed without torch,
numpy and pyarrow; what another package of ours brings is refused with the name of that package.
"""

import json
import shutil
from pathlib import Path

import pytest

from tests.strangers.conftest import HERE, Room, linked_room
from tests.tables import table

pytestmark = pytest.mark.long
HEAVY = ("torch", "numpy", "pyarrow")
OURS = ("slime_local", "slime_simulate", "slime_testing", "slime_train", "slime_view")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
VOCABULARY = {"a": 0, "b": 1, "c": 2, "d": 3, "<end>": 4}
CHOSEN = {
    "advantage": "centered",
    "engine": "five",
    "launcher": "in_process",
    "loss": "likelihood",
    "reward": "share_of_a",
    "trainer": "five",
}
FINETUNING = ("reward", "rollout_batch_size", "n_samples_per_prompt", "rollout_max_response_len")
"""What finetuning has no use for."""
IN_PROCESS = """
from slime_core.cli.main import run_cli
code = run_cli(sys.argv[1:])
found = sorted({"torch", "numpy", "pyarrow"} & sys.modules.keys())
print("imported:", ", ".join(found) or "none of them")
sys.exit(code)
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Room:
    """An environment with the core, what it requires, slime-toy and the tokenizers that slime-toy requires."""
    shutil.copytree(HERE / "toy", source := tmp_path_factory.mktemp("source") / "toy")
    return linked_room(tmp_path_factory.mktemp("alone"), source)


@pytest.fixture
def user(alone: Room, tmp_path: Path) -> Path:
    """A user's folder with a model and prompts."""
    model = tmp_path / "model"
    model.mkdir()
    backend = {
        "version": "1.0",
        "added_tokens": [{"id": 4, "content": "<end>", "special": True, **dict.fromkeys(_FLAGS, False)}],
        "model": {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "a"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
        "decoder": {"type": "Fuse"},
    }
    (model / "tokenizer.json").write_text(json.dumps(backend))
    (model / "config.json").write_text(json.dumps({"model_type": "five"}))
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": 4}))
    (model / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"input": "{first}{second}"}}\n' for first in "ab" for second in "cd")
    )
    write_run(tmp_path, "run.toml")
    return tmp_path


def write_run(folder: Path, name: str, *, without: tuple[str, ...] = (), **keys: object) -> Path:
    """A run file of TOML: the toy's choices, but for some, and keys."""
    values = {
        "hf_checkpoint": "model",
        "prompt_data": "rows.jsonl",
        "rollout_batch_size": 8,
        "n_samples_per_prompt": 8,
        "rollout_max_response_len": 12,
        "num_rollout": 12,
        "save_interval": 2,
        "lr": 1.0,
        **{role: {"use": choice} for role, choice in CHOSEN.items()},
        **keys,
    }
    lines = [f"{key} = {_toml(value)}\n" for key, value in values.items() if key not in without]
    (folder / name).write_text("".join(lines))
    return folder / name


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def slime(room: Room, folder: Path, *arguments: str) -> str:
    """A command of `slime` that ends well; returns what it prints."""
    done = room.run("slime", *arguments, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rewards(run: Path) -> list[float]:
    """The mean reward of each rollout."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["metrics"]["rollout/raw_reward"] for line in lines]


def logits(checkpoint: Path) -> bytes:
    """What a checkpoint has of the policy."""
    return (checkpoint / "hf" / "model.safetensors").read_bytes()


def test_nothing_else_is_there(alone: Room) -> None:
    names = (*HEAVY, *OURS, "jinja2", "transformers")
    code = f"import importlib.util as u; print([name for name in {names} if u.find_spec(name)])"
    assert alone.run("python", "-c", code).stdout.strip() == "[]"


def test_a_plan_shows_the_strangers_choices(alone: Room, user: Path) -> None:
    said = slime(alone, user, "plan", "run.toml")
    assert "slime-toy" in said
    assert "weights travel by   toy" in said
    assert not (user / "runs").exists()


def test_a_run_learns_and_a_resumed_one_ends_with_the_same_weights(alone: Room, user: Path) -> None:
    slime(alone, user, "train", "run.toml", "--no-progress")
    whole = user / "runs" / "run"
    assert len(found := rewards(whole)) == 12
    assert sum(found[-3:]) > sum(found[:3]) + 0.5

    slime(alone, user, "train", "run.toml", "--save", "runs/cut", "--num-rollout", "6", "--no-progress")
    slime(alone, user, "resume", "runs/cut", "--num-rollout", "12", "--no-progress")
    last = Path("checkpoints") / "rollout_000012"
    assert logits(user / "runs" / "cut" / last) == logits(whole / last)
    assert logits(user / "runs" / "cut" / last) != logits(whole / "checkpoints" / "rollout_000010")
    assert rewards(user / "runs" / "cut") == found


@table("command", ["plan", "train"])
def test_a_run_imports_nothing_heavy_where_it_could(alone: Room, user: Path, command: str) -> None:
    """Modules of these names are there, and each ends the process."""
    for name in HEAVY:
        (user / f"{name}.py").write_text(f"import os, sys; sys.stderr.write('{name} is imported'); os._exit(3)")
    code = f"import sys; sys.path.insert(0, {str(user)!r}); {IN_PROCESS}"
    done = alone.run("python", "-c", code, command, "run.toml", cwd=user)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "imported: none of them" in done.stdout


@table(
    "command, package",
    [
        ("sft run.toml", "slime-train"),
        ("why runs/run 0", "slime-view"),
        ("view runs/run", "slime-view"),
        ("generate model rows.jsonl", "slime-local"),
        ("demo", "slime-local"),
        ("simulate run.toml", "slime-simulate"),
        ("doctor", "slime-testing"),
        ("reward try share_of_a --data rows.jsonl", "slime-testing"),
        ("plugins check", "slime-testing"),
        ("plugins new reward mine", "slime-testing"),
    ],
)
def test_a_command_that_another_package_brings_names_it(alone: Room, user: Path, command: str, package: str) -> None:
    done = alone.run("slime", *command.split(), cwd=user)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"It comes with {package}. Install {package} from a checkout" in done.stderr
    assert f"./plugins/{package}" in done.stderr


@table("command", ["plan", "train"])
@table(
    "package, without, keys",
    [
        ("slime-view", (), {"stop_on_alarms": ["entropy"]}),
        ("slime-train", (), {"debug_rollout_only": True}),
        ("slime-train", ("rollout_batch_size", "n_samples_per_prompt"), {"load_debug_rollout_data": "runs/run"}),
        ("slime-train", ("advantage",), {"advantage_estimator": "grpo"}),
        ("slime-train", (), {"correction": {"use": "tis"}}),
        ("slime-train", FINETUNING, {"loss": {"use": "given"}}),
        ("slime-train", FINETUNING, {"loss": {"use": "sft_loss"}}),
        ("slime-train", ("launcher",), {}),
        ("slime-local", ("engine",), {}),
        ("slime-local", ("trainer",), {}),
        ("slime-trackers", (), {"tracker": {"use": "tensorboard"}}),
    ],
)
def test_a_key_that_needs_another_package_is_refused_before_a_process_starts(
    alone: Room, user: Path, command: str, package: str, without: tuple[str, ...], keys: dict[str, object]
) -> None:
    write_run(user, "other.toml", without=without, **keys)
    done = alone.run("slime", command, "other.toml", cwd=user)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"nstall {package} from a checkout of slime-core: pip install -e . -e ./plugins/" in done.stderr
    assert f" -e ./plugins/{package}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (user / "runs").exists()
