"""The command line itself: help, exit codes, flags against run file."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from slime_core import __version__
from slime_core.catalog import Catalog
from slime_core.cli import run_cli
from slime_core.cli.main import COMMANDS, cli
from slime_core.cli.run_options import collect_values, in_tables, split_settings
from slime_core.config import CHOOSES, FAMILIES, FlatKeys
from slime_core.errors import ConfigError, NonFiniteError, SlimeError, WorkerError
from slime_core.roles import SELECTABLE

Slime = Callable[..., Any]


def test_help_lists_every_command(slime: Slime) -> None:
    ran = slime("--help")
    assert ran.code == 0
    for name, (_, text) in COMMANDS.items():
        assert f"  {name} " in ran.out
        assert text in ran.out


def test_no_arguments_show_the_help(slime: Slime) -> None:
    ran = slime()
    assert "Commands:" in ran.out + ran.err


def test_the_version(slime: Slime) -> None:
    assert __version__ in slime("--version").out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(slime: Slime, name: str) -> None:
    ran = slime(name, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: slime {name} ")
    assert "--help" in ran.out


def test_trains_help_shows_every_key_role_and_setting_with_range_and_default(
    slime: Slime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    shown = slime("train", "--help").out
    keys = [key for family in FAMILIES.values() for key in family.model_fields]
    words = shown.split()
    for key in (*keys, *SELECTABLE, *CHOOSES, *FlatKeys(Catalog.discover()).owners):
        flag = key.replace("_", "-")
        assert f"--{flag}" in words or f"--[no-]{flag}" in words
    assert "Groups trained on per rollout.  [1 or more; default: 32]" in shown
    assert "--lr-decay-style constant|linear|cosine" in shown
    assert max(map(len, shown.splitlines())) <= 110


def test_a_misspelt_command_is_told_the_nearest(slime: Slime) -> None:
    ran = slime("trian")
    assert ran.code == 2
    assert "no command 'trian'. Did you mean 'train'? Commands: train, " in ran.err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("lr is wrong"), 2, "error: lr is wrong\n"),
        (WorkerError("trainer 0 died"), 1, "error: trainer 0 died\n"),
        (NonFiniteError("the loss is nan"), 1, "error: the loss is nan\n"),
        (SlimeError("something"), 1, "error: something\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
        (KeyboardInterrupt("while plugin x was loaded"), 130, "stopped while plugin x was loaded\n"),
        (asyncio.CancelledError(), 130, "stopped\n"),
    ],
)
def test_an_error_is_a_message_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setitem(cli.commands, "fail", fail)
    monkeypatch.setattr(cli, "get_command", lambda ctx, name: cli.commands.get(name))
    assert run_cli(["fail"]) == code
    assert capsys.readouterr().err.lstrip() == said


def test_a_mistake_of_ours_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: fail)
    with pytest.raises(AssertionError, match="a bug"):
        run_cli(["fail"])


@pytest.mark.parametrize(
    ("arguments", "rest", "settings"),
    [
        (["--engine.local.workers", "4"], [], {"engine": {"local": {"workers": 4}}}),
        (["--engine.local.workers=4", "--lr", "1"], ["--lr", "1"], {"engine": {"local": {"workers": 4}}}),
        (["--reward.a-b.some-key", "x"], [], {"reward": {"a-b": {"some_key": "x"}}}),
        (["--group-filter.f.k", "[1]"], [], {"group_filter": {"f": {"k": [1]}}}),
        (["--reward../my.py:fn.k", "x=y"], [], {"reward": {"./my.py:fn": {"k": "x=y"}}}),
        (["--reward.r.a", "1", "--reward.r.b", "2"], [], {"reward": {"r": {"a": 1, "b": 2}}}),
        (["--trainer.local.a", "--lr", "1"], ["--lr", "1"], {"trainer": {"local": {"a": True}}}),
        (["--trainer.local.a=True", "--trainer.local.b"], [], {"trainer": {"local": {"a": True, "b": True}}}),
        (["run.toml", "--save=runs/a.b", "x.y"], ["run.toml", "--save=runs/a.b", "x.y"], {}),
    ],
)
def test_settings_of_plugins_are_told_from_flags(
    arguments: list[str], rest: list[str], settings: dict[str, object]
) -> None:
    assert split_settings(arguments) == (rest, settings)


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["--engine.sglang.server.log-level", "info"], {"sglang": {"server": {"log_level": "info"}}}),
        (
            ["--engine.sglang.router.args.cache-threshold", "0.3", "--engine.sglang.gpus", "2"],
            {"sglang": {"router": {"args": {"cache_threshold": 0.3}}, "gpus": 2}},
        ),
        (["--engine.slime-engine-sglang/sglang.server.k", "1"], {"slime-engine-sglang/sglang": {"server": {"k": 1}}}),
        (["--engine.my_module.Engine.k", "1"], {"my_module.Engine": {"k": 1}}),
        (["--engine../my.py:fn.k", "1"], {"./my.py:fn": {"k": 1}}),
    ],
)
def test_settings_in_a_table_of_a_choice_are_told_from_code_of_the_project(
    arguments: list[str], settings: dict[str, object]
) -> None:
    _, given = split_settings(arguments)
    assert in_tables(given, Catalog.discover()) == {"engine": settings}


@pytest.mark.parametrize(
    ("in_file", "flags", "settings", "expected"),
    [
        ("eps_clip = 0.2", {"eps_clip": "0.3"}, {}, {"eps_clip": 0.3}),
        ("[loss.policy_loss]\neps_clip = 0.2", {"eps_clip": "0.3"}, {}, {"eps_clip": 0.3, "loss": {"policy_loss": {}}}),
        (
            "eps_clip = 0.2",
            {},
            {"loss": {"policy_loss": {"eps_clip": 0.3}}},
            {"loss": {"policy_loss": {"eps_clip": 0.3}}},
        ),
        (
            "[loss.gspo]\neps_clip = 0.2",
            {"eps_clip": "0.3", "loss_type": "gspo"},
            {},
            {"eps_clip": 0.3, "loss_type": "gspo", "loss": {"gspo": {}}},
        ),
        (
            'loss_type = "gspo"\neps_clip = 0.2',
            {},
            {"loss": {"gspo": {"eps_clip": 0.3}}},
            {"loss_type": "gspo", "loss": {"gspo": {"eps_clip": 0.3}}},
        ),
        (
            '[advantage]\nuse = "rloo"\n[loss]\nuse = "policy_loss"',
            {"advantage_estimator": "gspo"},
            {},
            {"advantage_estimator": "gspo", "advantage": {}, "loss": {}},
        ),
        ('loss_type = "cispo"', {"advantage_estimator": "gspo"}, {}, {"advantage_estimator": "gspo"}),
        ('[loss]\nuse = "sft_loss"', {"loss_type": "policy_loss"}, {}, {"loss_type": "policy_loss", "loss": {}}),
        ('loss_type = "sft_loss"', {"loss": ("policy_loss",)}, {}, {"loss": {"use": {"policy_loss": 1.0}}}),
        ("rollout_shuffle = true", {"rollout_shuffle": False}, {}, {"rollout_shuffle": False}),
        (
            "actor_num_gpus_per_node = 4\n[trainer.local]\nranks = 4",
            {"actor_num_gpus_per_node": "2"},
            {},
            {"actor_num_gpus_per_node": "2", "trainer": {"local": {}}},
        ),
        (
            "actor_num_gpus_per_node = 4",
            {},
            {"trainer": {"local": {"ranks": 2}}},
            {"trainer": {"local": {"ranks": 2}}},
        ),
        ("rollout_num_engines = 1", {"rollout_num_gpus": "4"}, {}, {"rollout_num_gpus": "4"}),
        ("rollout_num_gpus = 4", {"rollout_num_engines": "2"}, {}, {"rollout_num_engines": "2"}),
        ('reward = {use = "math"}', {"reward": ("a=0.5", "b")}, {}, {"reward": {"use": {"a": 0.5, "b": 1.0}}}),
    ],
)
def test_a_flag_wins_over_every_spelling_of_its_key_in_the_run_file(
    tmp_path: Path, in_file: str, flags: dict[str, object], settings: dict[str, Any], expected: dict[str, object]
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(in_file)
    assert collect_values(path, flags, settings, Catalog.discover()) == expected


THREAD = """
import importlib, threading

main = importlib.import_module("slime_core.cli.main")
main.EXIT_S = 0.5
threading.Thread(target=threading.Event().wait, name="of a plugin").start()
main.main(["--version"])
"""


def test_a_thread_that_a_plugin_left_running_does_not_keep_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", THREAD], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "done, and not ended in 0.5 s: of a plugin still running" in done.stderr
