"""The command line itself: help, exit codes, flags against run file."""

import asyncio
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from slime_core.catalog import Catalog
from slime_core.cli import run_cli
from slime_core.cli.main import COMMANDS, cli
from slime_core.config import FAMILIES, ROLE_OF_ALIAS, FlatKeys
from slime_core.errors import ConfigError, NonFiniteError, SlimeError, WorkerError
from slime_core.roles import SELECTABLE
from tests.conftest import Slime
from tests.tables import table


def test_help_lists_every_command(slime: Slime) -> None:
    ran = slime.ok("--help")
    for name, (_, text) in COMMANDS.items():
        assert f"  {name} " in ran.out
        assert text in ran.out


@table("name", COMMANDS)
def test_every_command_explains_itself(slime: Slime, name: str) -> None:
    ran = slime.ok(name, "--help")
    assert ran.out.startswith(f"Usage: slime {name} ")
    assert "--help" in ran.out


def test_trains_help_is_short_and_its_topics_show_every_key_role_and_setting(
    slime: Slime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    short = slime("train", "--help").out
    assert 20 <= short.count("\n  --") <= 35
    assert len(short.splitlines()) <= 80
    assert "--lr X " in short
    assert "--help all" in short
    shown = slime("train", "--help", "all").out
    keys = [key for family in FAMILIES.values() for key in family.model_fields]
    words = shown.split()
    for key in (*keys, *SELECTABLE, *ROLE_OF_ALIAS, *FlatKeys(Catalog.discover()).owners):
        flag = key.replace("_", "-")
        assert f"--{flag}" in words or f"--[no-]{flag}" in words
    assert "Groups trained on per rollout.  [1 or more; default: 32]" in shown
    assert "--lr-decay-style constant|linear|cosine" in shown
    assert max(map(len, shown.splitlines())) <= 110
    for word in ("None", "Optional", "Literal", "list[", "Annotated", "INT", "FLOAT"):
        assert word not in shown


@table(
    "topic, there, missing",
    [
        ("lr", "--lr-decay-style", "--hf-checkpoint"),
        ("optim", "--adam-beta1", "--lora-rank"),
        ("trainer", "--lora-rank", "--adam-beta1"),
        ("sglang_dp", "every setting of sglang", "--lr"),
    ],
)
def test_help_on_a_topic_shows_the_keys_that_belong_to_it(topic: str, there: str, missing: str) -> None:
    ran = CliRunner().invoke(cli, ["plan", "run.toml", "--help", topic])
    assert ran.exit_code == 0
    assert there in ran.output
    assert missing not in ran.output.split()


def test_help_on_what_is_no_topic_names_the_nearest(slime: Slime) -> None:
    assert "no help on 'optimm'. Did you mean 'optim'?" in slime.refused("train", "--help", "optimm")


def test_a_misspelt_command_names_the_nearest(slime: Slime) -> None:
    assert "no command 'trian'. Did you mean 'train'? Commands: train, " in slime.refused("trian")


@table(
    "error, code, message",
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
    message: str,
) -> None:
    @click.command()
    def fail() -> None:
        raise error

    monkeypatch.setitem(cli.commands, "fail", fail)
    monkeypatch.setattr(cli, "get_command", lambda ctx, name: cli.commands.get(name))
    assert run_cli(["fail"]) == code
    assert capsys.readouterr().err.lstrip() == message


def test_a_mistake_of_ours_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(cli, "get_command", lambda ctx, name: fail)
    with pytest.raises(AssertionError, match="a bug"):
        run_cli(["fail"])


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
    assert "finished, but did not exit within 0.5 s: of a plugin still running" in done.stderr
