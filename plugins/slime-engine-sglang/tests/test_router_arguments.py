"""Arguments of the installed router: queried in its Python, checked before the start, and its command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_python import python_with
from servers import needs_routers

from slime_core.cli import run_cli
from slime_core.errors import ConfigError
from slime_engine_sglang.arguments import LIST_SCRIPT, router_arguments, router_arguments_file
from slime_engine_sglang.command_line import command_line
from slime_engine_sglang.server_command import check_router
from slime_engine_sglang.settings import ROUTER_OWN_ARGUMENTS, RouterSettings
from slime_testing import write_tiny_model
from tests.tables import table

ROUTERS = {"smg": "1.13.0", "sglang-router": "0.3.2"}
FAKE_PYTHON = """#!/bin/sh
# Like `python -P list_arguments.py FILE smg`; logs each query.
echo "$4" >> "{log}"
cp "{listed_file}" "$3"
"""
ARGUMENTS = [
    {"name": "policy", "kind": "text", "choices": ["cache_aware", "random"]},
    {"name": "cache_threshold", "kind": "number", "default": 0.3},
    {"name": "worker_auto_recovery", "kind": "switch", "negative": "no_worker_auto_recovery"},
    {"name": "port", "kind": "integer"},
]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A fake Python with smg that lists the arguments in TOLD."""
    python = python_with(tmp_path / "routers", "1.13.9", program="smg")
    (tmp_path / "listed.json").write_text(json.dumps(ARGUMENTS), "utf-8")
    python.write_text(FAKE_PYTHON.format(log=tmp_path / "log", listed_file=tmp_path / "listed.json"), "utf-8")
    return python


def settings_of(python: Path, **given: object) -> RouterSettings:
    return RouterSettings.model_validate({"python": python, **given})


def test_router_arguments_are_queried_once(tmp_path: Path, python: Path) -> None:
    for _ in range(2):
        check_router(settings_of(python, policy="random", args={"cache-threshold": 0.5, "worker_auto_recovery": False}))
        router_arguments.cache_clear()
    assert (tmp_path / "log").read_text("utf-8") == "smg\n"


def test_missing_router_package_is_refused(tmp_path: Path, python: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"sglang-router is not installed in .*\. Run `.* -m pip install sglang-router`, or"
    ):
        check_router(settings_of(python, use="sglang-router"))
    with pytest.raises(ConfigError, match=f"smg is not installed in {sys.executable}"):
        check_router(RouterSettings())


def test_shipped_router_releases_are_not_queried(tmp_path: Path) -> None:
    for program, version in ROUTERS.items():
        python = python_with(tmp_path / program, version, program=program.replace("-", "_"))  # cannot list them
        check_router(settings_of(python, use=program, args={"cache_threshold": 0.4}))
        known = router_arguments(program, python)
        assert {"cache_threshold", "retry_max_retries", *ROUTER_OWN_ARGUMENTS} <= {each.name for each in known}
        if program == "smg":
            assert list(command_line(known, {"worker_auto_recovery": False})) == ["--no-worker-auto-recovery"]


@pytest.mark.server
@pytest.mark.parametrize("use", ROUTERS)
def test_shipped_router_arguments_match_the_releases(tmp_path: Path, use: str) -> None:
    listed_file = tmp_path / "listed.json"
    subprocess.run([needs_routers(), "-P", LIST_SCRIPT, listed_file, use], check=True)
    listed = router_arguments_file(use, ROUTERS[use])
    assert json.loads(listed.read_text("utf-8")) == json.loads(listed_file.read_text("utf-8"))


def planned(folder: Path, *flags: object, **keys: str) -> int:
    """Exit code of `slime plan` for a run with the engine sglang, these flags, and these keys in the run file."""
    model, sglang = folder / "model", folder / "servers"
    if not model.exists():
        write_tiny_model(model)
        python_with(sglang, "0.5.23")
        (folder / "prompts.jsonl").write_text('{"input": "t5"}\n', "utf-8")
    given = {"hf_checkpoint": model, "prompt_data": folder / "prompts.jsonl", "save": folder / "run", **keys}
    lines = [f'{key} = "{value}"' for key, value in given.items()]
    fixed = ["num_rollout = 1", "rollout_max_response_len = 8", '[reward]\nuse = "random"', '[engine]\nuse = "sglang"']
    table = f'[engine.sglang]\npython = "{sglang}/bin/python"'
    (folder / "run.toml").write_text("\n".join([*lines, *fixed, table]), "utf-8")
    return run_cli(["plan", str(folder / "run.toml"), *map(str, flags)])


def router_of(output: str) -> object:
    return next(row["settings"]["router"] for row in json.loads(output)["choices"] if row["role"] == "engine")


def test_slime_router_flags_map_to_settings(tmp_path: Path, python: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--router-policy", "random", "--router-cache-threshold", "0.5", "--no-router-worker-auto-recovery"]
    expected = {
        "use": "smg",
        "python": str(python),
        "policy": "random",
        "args": {"cache_threshold": 0.5, "worker_auto_recovery": False},
    }
    assert planned(tmp_path, "--json", "--router-python", python, *flags) == 0
    assert router_of(capsys.readouterr().out) == expected
    assert planned(tmp_path, "--json", *flags[2:], router_python=str(python), router_policy="random") == 0
    assert router_of(capsys.readouterr().out) == expected
    inline = ["--engine.sglang.router.python", python, "--engine.sglang.router.policy", "random"]
    assert planned(tmp_path, "--json", *inline, *flags[2:]) == 0
    assert router_of(capsys.readouterr().out) == expected


@table(
    "flags, message",
    [
        (
            ["--router-cache-treshold", "0.5"],
            "args.cache_treshold: smg has no such argument. Did you mean 'cache_threshold'?",
        ),
        (["--router-prometheus-port", "5"], "prometheus_port cannot be set, because it follows from the run"),
        (["--router-cache-threshold", "much"], "args.cache_threshold = 'much': input should be a valid number"),
        (["--router-policy", "cleverly"], "policy = 'cleverly': input should be 'cache_aware' or 'random'"),
        (["--engine", "local", "--router-policy", "random"], "router_policy has no effect here: it is a setting of"),
        (
            ["--router-cache-threshold", "0.5", "--engine.sglang.router.args.cache_threshold", "0.6"],
            "cache_threshold is set to 0.5, and in args to 0.6",
        ),
    ],
)
def test_invalid_router_flags_are_refused_in_the_plan(
    tmp_path: Path, python: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    with_prometheus = [*ARGUMENTS, {"name": "prometheus_port", "kind": "integer"}]
    (tmp_path / "listed.json").write_text(json.dumps(with_prometheus), "utf-8")
    where = [] if "local" in flags else ["--router-python", python]
    assert planned(tmp_path, *where, *flags) == 2
    assert message in " ".join(capsys.readouterr().err.split())
