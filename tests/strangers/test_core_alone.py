"""The core and what it requires, alone with a stranger's plugin: a run is planned, trained and resumed without torch,
numpy and pyarrow; what another package of ours brings is refused with the name of that package.
"""

import shutil
from pathlib import Path

import pytest

from slime_core.sample import Json
from slime_testing import write_distribution
from tests.faults import toy
from tests.strangers.conftest import Room, linked_room
from tests.tables import table

pytestmark = pytest.mark.long
HEAVY = ("torch", "numpy", "pyarrow")
OURS = ("slime_local", "slime_simulate", "slime_testing", "slime_train", "slime_view")
CHOSEN: dict[str, Json] = {
    "plugins": None,
    "advantage": {"use": "none"},
    "loss": {"use": "toy_loss"},
    "rollout_max_response_len": 12,
}
FINETUNING = (
    "reward",
    "group_filter",
    "eval_prompt_data",
    "eval_interval",
    "rollout_batch_size",
    "over_sampling_batch_size",
    "n_samples_per_prompt",
    "rollout_max_response_len",
)
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
    """An environment with the core, what it requires, tokenizers and the toy of the fault suite as a distribution."""
    made = linked_room(tmp_path_factory.mktemp("alone"))
    source = Path(toy.__file__).read_text("utf-8")
    write_distribution(made.site_packages, "slime-toy", {"slime_toy.py": source}, entry_points={"toy": "slime_toy"})
    return made


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's folder with a model, prompts and a run file."""
    return write_user(tmp_path)


def write_user(folder: Path, **changes: Json) -> Path:
    """Write it; the chat template goes, which needs jinja2."""
    toy.write_project(folder, **{**CHOSEN, **changes})
    (folder / "model" / "tokenizer_config.json").unlink()
    return folder


def slime(room: Room, folder: Path, *arguments: str) -> str:
    """A command of `slime` that ends well; returns what it prints."""
    done = room.run("slime", *arguments, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_nothing_else_is_there(alone: Room) -> None:
    names = (*HEAVY, *OURS, "jinja2", "transformers")
    code = f"import importlib.util as u; print([name for name in {names} if u.find_spec(name)])"
    assert alone.run("python", "-c", code).stdout.strip() == "[]"


def test_a_plan_shows_the_strangers_choices(alone: Room, user: Path) -> None:
    output = slime(alone, user, "plan", "run.toml")
    assert "slime-toy" in output
    assert "weights travel by   toy" in output
    assert not (user / "runs").exists()


def test_a_run_trains_and_a_resumed_one_ends_with_the_same_weights(alone: Room, user: Path) -> None:
    slime(alone, user, "train", "run.toml", "--num-rollout", "6", "--no-progress")
    slime(alone, user, "train", "run.toml", "--save", "runs/cut", "--num-rollout", "4", "--no-progress")
    slime(alone, user, "resume", "runs/cut", "--num-rollout", "6", "--no-progress")
    weights = {
        (run, step): (user / f"runs/{run}/checkpoints/rollout_00000{step}/hf/model.safetensors").read_bytes()
        for run in ("run", "cut")
        for step in (4, 6)
    }
    assert weights["cut", 6] == weights["run", 6] != weights["run", 4]
    assert weights["cut", 4] == weights["run", 4]


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
        ("generate model prompts.jsonl", "slime-local"),
        ("demo", "slime-local"),
        ("simulate run.toml", "slime-simulate"),
        ("doctor", "slime-testing"),
        ("reward try even --data prompts.jsonl", "slime-testing"),
        ("plugins check", "slime-testing"),
        ("plugins new reward mine", "slime-testing"),
    ],
)
def test_a_command_that_another_package_brings_names_it(alone: Room, user: Path, command: str, package: str) -> None:
    done = alone.run("slime", *command.split(), cwd=user)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"It comes with {package}. Install {package} from a checkout" in done.stderr
    assert f"./plugins/{package}" in done.stderr


@table(
    "package, without, keys",
    [
        ("slime-view", (), {"stop_on_alarms": ["entropy"]}),
        ("slime-train", (), {"debug_rollout_only": True}),
        ("slime-train", ("rollout_batch_size", "n_samples_per_prompt"), {"load_debug_rollout_data": "runs/other"}),
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
    alone: Room, user: Path, package: str, without: tuple[str, ...], keys: dict[str, Json]
) -> None:
    shutil.rmtree(user / "model", ignore_errors=True)
    write_user(user, **keys, **dict.fromkeys(without))
    done = alone.run("slime", "train", "run.toml", cwd=user)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"nstall {package} from a checkout of slime-core: pip install -e . -e ./plugins/" in done.stderr
    assert f" -e ./plugins/{package}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (user / "runs").exists()
