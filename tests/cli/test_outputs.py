"""What a user has is never replaced: every key and option that names a place to write is tried on files of a user."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from slime_core.cli.main import cli
from slime_core.config import FAMILIES
from slime_core.config.plan import OUTPUT_KEYS, RUN_PARTS
from tests.conftest import Project, Slime

READ_KEYS = {
    *("prompt_data", "eval_prompt_data", "served_models", "hf_checkpoint", "load_debug_rollout_data"),
    *("ref_load", "opd_teacher_load", "critic_load"),
}
READ_OPTIONS = {"run_file", "run_dir", "run", "first", "second", "model", "data", "script"}
WRITES: dict[str, list[str]] = {
    "generate out": ["generate", "MODEL", "2+3?", "--out"],
    "trace out": ["trace", "runs/none", "--out"],
    "reward try out": ["reward", "try", "math", "--data", "prompts.jsonl", "--out"],
    "agent show out": ["agent", "show", ".", "--out"],
    "migrate out": ["migrate", "script.sh", "--out"],
    "report out": ["report", ".", "--html", "--out"],
    "convert target": ["convert", "MODEL"],
    "demo save": ["demo", "--save"],
    "plugins new into": ["plugins", "new", "reward", "notes", "--into"],
}
"""How to call each command so that it would write to the path that follows."""
EVAL = ["eval", "MODEL", "--eval-prompt-data", "held", "prompts.jsonl", "--input-key", "question", "--reward", "math"]


def options(command: click.Command, context: click.Context, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Command and name of every option that takes a path which need not be there."""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (found := command.get_command(context, name)) is not None:
                yield from options(found, click.Context(found, info_name=name, parent=context), (*path, name))
        return
    for parameter in command.get_params(context):
        if isinstance(parameter.type, click.Path) and not parameter.type.exists:
            yield " ".join(path), parameter.name or ""


def contents(root: Path) -> dict[str, str]:
    """Text of every file below a folder, without the bytecode of its plugins."""
    files = (each for each in root.rglob("*") if each.is_file() and each.parent.name != "__pycache__")
    return {str(each.relative_to(root)): each.read_text("latin-1") for each in files}


def write_notes(root: Path) -> None:
    for name in ("notes", "models/3", "dump", "slime-reward-notes", "notes.toml"):
        (root / name).mkdir(parents=True)
        (root / name / "notes.txt").write_text("mine")
    (root / "dump" / "0-0.safetensors").write_text("mine")
    (root / "notes.txt").write_text("mine")
    (root / "link").symlink_to("notes")
    (root / "script.sh").write_text("python3 train.py --lr 1e-6\n")


def test_every_key_that_may_name_a_path_is_said_to_be_read_or_written() -> None:
    keys = {key: info for family in FAMILIES.values() for key, info in family.model_fields.items()}
    paths = {key for key, info in keys.items() if "Path" in str(info.annotation) or "_data" in key or "save" in key}
    no_paths = {"save_interval", "save_keep", "save_best", "async_save", "accept_changed_data"}
    no_paths |= {"load_debug_rollout_data_subsample"}
    assert paths - no_paths <= {*OUTPUT_KEYS, *READ_KEYS}


def test_every_option_that_takes_a_path_is_said_to_be_read_or_written() -> None:
    found = {f"{path} {name}" for path, name in options(cli, click.Context(cli), ()) if name not in READ_OPTIONS}
    assert found <= WRITES.keys(), "add how to call it to WRITES, and have it refuse what is there"


def test_no_command_writes_over_files_of_a_user(project: Project, slime: Slime) -> None:
    write_notes(project.root)
    before, wrong = contents(project.root), []
    for how in [*WRITES.values(), [*EVAL, "--save"]]:
        command = [str(project.model) if each == "MODEL" else each for each in how]
        into = how[0] == "plugins"  # the folder that it makes is named by the package
        for target in ["."] if into else [".", "notes.txt", "notes", "link", "notes.toml"]:
            ran = slime(*command, target)
            if ran.code != 2 or contents(project.root) != before:
                wrong.append(f"{' '.join(how)} {target}: {ran.code} {ran.err}")
                before = contents(project.root)
    assert not wrong, "\n".join(wrong)


def test_no_key_replaces_files_of_a_user(project: Project, slime: Slime, monkeypatch: pytest.MonkeyPatch) -> None:
    write_notes(project.root)
    model = project.root / "base" / "model"
    shutil.copytree(project.model, model)
    (project.root / "to-model").symlink_to(model)
    monkeypatch.setenv("HOME", str(project.root / "home"))
    (project.root / "home").mkdir()
    project.write_run(hf_checkpoint=str(model))
    folders = ["", ".", "/", "..", project.root / "home", model, model.parent, "to-model", "notes", "link", "notes.txt"]
    refused = {
        "save": folders,
        "save_hf": [*folders, "models/{rollout_id}", "runs", "runs/run", "runs/run/checkpoints", "runs/run/report"],
        "save_debug_train_data": ["notes.txt", "prompts.jsonl", "dump/{rollout_id}-{rank}.safetensors", "", "."],
    }
    (project.root / "runs" / "other" / "checkpoints").mkdir(parents=True)
    (project.root / "runs" / "other" / "lock").touch()
    refused["save"] += ["notes.txt/in/it", "/proc/new"]
    refused["save_hf"] += ["notes.txt/in/{rollout_id}", "/proc/new/{rollout_id}", "runs/other/model"]
    refused["save_debug_train_data"] += ["notes.txt/{rollout_id}-{rank}", "runs/other/{rollout_id}-{rank}"]
    refused["save_debug_train_data"] += ["runs/run/metrics.jsonl", "runs", "link/notes.txt", model / "config.json"]
    before, wrong = contents(project.root), []
    for key, values in refused.items():
        for value in values:
            for command in ("plan", "train"):
                ran = slime(command, "run.toml", f"--{key.replace('_', '-')}", value)
                if ran.code != 2 or contents(project.root) != before or f"{key} = " not in ran.err:
                    wrong.append(f"{command} {key} = {value}: {ran.code} {ran.err}")
    assert "save = '': it is empty" in slime("plan", "run.toml", "--save", "").err
    assert "neither inside the other" in slime.refused(
        "plan", "run.toml", "--save-hf", "new", "--save-debug-train-data", "new/{rollout_id}.safetensors"
    )
    assert not wrong, "\n".join(wrong)


def test_places_where_nothing_is_are_accepted(project: Project, slime: Slime) -> None:
    (project.root / "empty").mkdir()
    (project.root / "dangling").symlink_to("nowhere")
    for flags in (
        ["--save", "empty", "--save-hf", "new/{rollout_id}"],
        ["--save", "new/run", "--save-hf", "empty"],
        ["--save-hf", "dangling", "--save-debug-train-data", "runs/run/train/{rollout_id}-{rank}.safetensors"],
        ["--save-hf", "runs/run/models/{rollout_id}", "--save-debug-train-data", "dump{rollout_id}"],
    ):
        assert slime("plan", "run.toml", *flags).code == 0, flags


def test_a_run_goes_on_with_what_it_made_and_no_other_run_takes_it(project: Project, slime: Slime) -> None:
    outputs = {"save_hf": "model", "save_debug_train_data": "dump/{rollout_id}.safetensors"}
    project.write_run(num_rollout=1, save_interval=1, **outputs)
    assert slime("train", "run.toml").code == 0
    assert {each.name for each in project.run.iterdir()} <= RUN_PARTS
    slime.ok("resume", project.run, "--num-rollout", 2)
    newest = project.run / "checkpoints" / "rollout_000002" / "hf" / "model.safetensors"
    assert newest.samefile(project.root / "model" / "model.safetensors")
    held = ["--eval-prompt-data", "held", "prompts.jsonl"]
    assert slime("eval", project.run, *held).code == 0, "an evaluation writes no model"
    before = contents(project.root)
    for key, value in outputs.items():
        project.write_run(**{key: value})
        assert f"{key} = {value!r}" in slime.refused("train", "run.toml", "--save", "runs/other")
        assert contents(project.root) == {**before, "run.toml": (project.root / "run.toml").read_text()}
