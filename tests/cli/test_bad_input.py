"""Bad input ends with exit code 2 and one clear message, before any process is started."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slime_testing import write_distribution
from tests.conftest import Project, Ran, Slime
from tests.tables import table

BROKEN = "import a_library_that_nobody_has\n"
ELSEWHERE = """
import click

@click.command()
def hello() -> None:
    click.echo("hello")
"""


def refused(ran: Ran, run: Path, *message: str) -> None:
    """The command failed as bad input does, said so without a traceback, and no worker was started."""
    assert ran.code == 2, ran.err
    for text in message:
        assert text in ran.err
    assert "Traceback" not in ran.err
    assert not list(run.glob("logs/*"))


@table(
    "flags, message",
    [
        ("--rolout-batch-size 3", ["'--rolout-batch-size'", "Did you mean", "--rollout-batch-size"]),
        ("--lr-scheduler-type=inverse_sqrt", ["'--lr-decay-style'?", "'inverse_sqrt' is 'inverse-square-root' here."]),
        ("--tis-clip 2", ["correction.use is empty", '[correction] use = "tis" or --correction tis']),
        ("--rollout-batch-size 1000000000", ["rollout_batch_size = 1000000000 with n_samples_per_prompt = "]),
        ("--reward ./nowhere.py:digits", ["nowhere.py"]),
        ("--engine lokal", ["no engine 'lokal'. Did you mean 'local'?"]),
        ("--engine.local.wokers 4", ["unknown setting engine.local.wokers. Did you mean 'workers'?"]),
        ("--engine.local.workers", ["engine.local.workers = True: input should be a number"]),
        ("--gradient-checkpointing=1", ["write --gradient-checkpointing or --no-gradient-checkpointing"]),
        (
            "--engine.lokal.workers 4",
            ["[engine.lokal]: nothing chooses 'lokal', and no plugin offers it. Did you mean 'local'?"],
        ),
        (
            "--engine.elsewhere.workers 4",
            ["--engine.elsewhere.* has no effect here: nothing chooses 'elsewhere'", "--engine elsewhere"],
        ),
    ],
)
def test_bad_flags(project: Project, slime: Slime, flags: str, message: list[str]) -> None:
    refused(slime("train", "run.toml", *flags.split()), project.run, *message)
    assert not project.run.exists()


def test_flags_that_break_a_parser(project: Project, slime: Slime) -> None:
    for flags, message in (
        (["--reward." + ".".join("k" * 5000), "1"], "has over 32 parts; settings are written --ROLE.NAME.KEY VALUE"),
        (["--engine.local.workers", "[" * 100_000], "is nested over 32 deep"),
        (["--engine.local.workers", "[" * 40 + "]" * 40], "is nested over 32 deep"),
        (["--engine.local.workers", "9" * 5000], "engine.local.workers = '9999"),
        (["--engine.local.workers", "9" * 50], "is an integer of 167 bits; at most 64 are allowed"),
        (["--reward", "./rewards.py:digits", "--engine.local.dtype", '"\\u0000"'], "holds a NUL character"),
        (["--lr", "9" * 300], "lr = '9999"),
        (["--no-bf16=false"], "No such option '--no-bf16'. Did you mean '--bf16'?"),
        (["--rollout-stop", "\udcff"], "half a surrogate pair"),
        (["--apply-chat-template-kwargs", '{"a": "\\ud800"}'], "half a surrogate pair"),
        (["--apply-chat-template-kwargs", '{"a": [1, null]}'], "a is a list with a null"),
    ):
        ran = slime("train", "run.toml", *flags)
        refused(ran, project.run, message)
        assert len(ran.err) < 1_000


@table(
    "missing, message",
    [
        ("config.json", "no config.json: "),
        ("model.safetensors", "no .safetensors weights: "),
        ("tokenizer.json", "no tokenizer.json: "),
    ],
)
def test_an_incomplete_model(project: Project, slime: Slime, missing: str, message: str) -> None:
    model = project.root / missing / "model"
    shutil.copytree(project.model, model)
    (model / missing).unlink()
    project.write_run(hf_checkpoint=str(model))
    refused(slime("train", "run.toml"), project.run, message, "model holds ")
    assert not project.run.exists()


def test_a_disk_too_small_for_the_weights(project: Project, slime: Slime, tiny_disk: Path) -> None:
    """Seen when their number is known; the ranks are stopped in good order instead of by SIGBUS."""
    refusal = slime.refused("train", "run.toml", "--save", tiny_disk / "run")
    assert re.search(r"cannot make room for the weights, \d\.\d MiB, in .*: No space left", refusal)
    assert "Traceback" not in refusal


TO_TYPE = (
    "Install slime-local from a checkout of slime-core: "
    "pip install -e . -e ./plugins/slime-train -e ./plugins/slime-view -e ./plugins/slime-local"
)


def installed(*arguments: str, at: Path, hidden: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    """`slime` in a process of its own, with another distribution installed, and perhaps one that is not."""
    hide = f"""
import importlib.metadata as metadata
found = metadata.distributions
metadata.distributions = lambda **given: (each for each in found(**given) if each.name != {hidden!r})
"""
    code = f"{hide if hidden else ''}\nfrom slime_core.cli import main\nmain({list(arguments)!r})"
    inherited = {name: value for name, value in os.environ.items() if name != "SLIME_PLUGINS_STRICT"}
    env = {**inherited, "PYTHONPATH": str(at), "COLUMNS": "200", **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)


@table(
    "flags, message",
    [
        ([], "no engine 'local'. Available: sglang (slime-engine-sglang 0.1.0). 'local' comes with slime-local. "),
        (["--lora-rank", "8"], "It is a setting of trainer 'local', which comes with slime-local. "),
    ],
)
def test_a_run_without_the_local_engine_and_trainer_says_what_to_install(
    project: Project, flags: list[str], message: str
) -> None:
    ran = installed("train", "run.toml", *flags, at=project.root, hidden="slime-local")
    assert ran.returncode == 2
    assert f"{message}{TO_TYPE}" in ran.stderr
    assert "pip install slime" not in ran.stderr
    assert not project.run.exists()


def test_a_name_from_elsewhere_without_the_plugin_that_knows_it(project: Project) -> None:
    ran = installed("train", "run.toml", "--learning-rate", "1e-5", at=project.root, hidden="slime-compat")
    assert ran.returncode == 2
    assert "A name of OpenRLHF, TRL, peft, slime, verl? slime-compat knows what they are called here. " in ran.stderr
    assert "slime-core: pip install -e . -e ./plugins/slime-compat" in ran.stderr
    project.write_run(rolout_batch_size=3)
    ran = installed("train", "run.toml", at=project.root, hidden="slime-compat")
    assert "unknown key 'rolout_batch_size'. Did you mean 'rollout_batch_size'? A name of OpenRLHF" in ran.stderr


def test_a_broken_plugin_is_a_warning_where_it_is_not_needed_and_named_where_it_might_be(project: Project) -> None:
    at = project.root / "site"
    write_distribution(at, "slime-reward-other", {"other.py": BROKEN}, entry_points={"other": "other"})
    warning = "plugin slime-reward-other 1.0 (other): failed: "
    fine = installed("plan", "run.toml", "--json", at=at)
    assert fine.returncode == 0, fine.stderr
    assert fine.stderr.startswith(f"warning: {warning}")
    assert fine.stderr.count(warning) == 1
    assert json.loads(fine.stdout)["choices"]

    needed = installed("train", "run.toml", "--reward", "other", at=at)
    assert needed.returncode == 2
    assert "error: no reward 'other'." in needed.stderr
    assert f"Not loaded, and might have offered it: {warning}" in needed.stderr
    assert "a_library_that_nobody_has" in needed.stderr
    assert "Traceback" not in needed.stderr

    strict = installed("plan", "run.toml", at=at, SLIME_PLUGINS_STRICT="1")
    assert strict.returncode == 2
    assert f"error: {warning}" in strict.stderr
    assert not project.run.exists()


def add_command(at: Path, source: str, module: str = "slime_hello") -> None:
    write_distribution(at, module.replace("_", "-"), {f"{module}.py": source}, entry_points={})
    (at / f"{module}-1.0.dist-info/entry_points.txt").write_text(f"[slime.commands]\nhello = {module}:hello\n")


def test_another_package_can_add_a_command(tmp_path: Path) -> None:
    add_command(tmp_path, ELSEWHERE)
    assert installed("hello", at=tmp_path).stdout == "hello\n"
    assert re.search(r"hello +from slime-hello", installed("--help", at=tmp_path).stdout)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (BROKEN, "cannot be loaded: ModuleNotFoundError: No module named 'a_library_that_nobody_has'"),
        ("hello = 5", "is a int; expected a click.Command"),
    ],
)
def test_a_broken_command_of_another_package_harms_only_itself(tmp_path: Path, source: str, message: str) -> None:
    add_command(tmp_path, source)
    ran = installed("hello", at=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == f"error: command 'hello' of slime-hello (slime_hello:hello) {message}\n"
    assert installed("--help", at=tmp_path).returncode == 0
    assert installed("plugins", "list", at=tmp_path).returncode == 0


def test_a_command_of_two_packages_is_refused(tmp_path: Path) -> None:
    add_command(tmp_path, ELSEWHERE)
    add_command(tmp_path, ELSEWHERE, "slime_greet")
    ran = installed("hello", at=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr == (
        "error: command 'hello' is offered by slime-greet and slime-hello: uninstall all of them but one\n"
    )
    assert installed("--help", at=tmp_path).stdout.count("hello") == 2


def test_a_response_budget_beyond_the_model_is_refused_before_anything_starts(project: Project, slime: Slime) -> None:
    refusal = slime.refused("train", "run.toml", "--rollout-max-response-len", 512)
    assert "rollout_max_response_len = 512: the model in" in refusal
    assert "256 positions" in refusal
    assert not project.run.exists()
