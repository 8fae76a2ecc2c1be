"""Arguments of the installed SGLang: its release, listed or queried arguments, and the command line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fake_python import python_with
from fake_server_engines import setup_at
from pydantic import JsonValue
from servers import PYTHON, needs_servers

from slime_core.errors import ConfigError
from slime_core.roles import EngineUse, SamplingParams
from slime_engine_sglang.arguments import (
    LIST_SCRIPT,
    NEWEST,
    SHIPPED,
    SglangWarning,
    installed_version,
    server_arguments,
    server_model,
)
from slime_engine_sglang.command_line import ArgumentKind
from slime_engine_sglang.server_command import check_use, explain, server_command
from slime_engine_sglang.settings import SglangSettings, layout_of
from slime_testing import write_tiny_model
from tests.tables import table

ASKED = """#!/bin/sh
# Like `python -P list_arguments.py FILE`; logs each query.
echo called >> "{log}"
echo '[{{"name": "brand_new", "kind": "integer", "help": "New.", "default": 3}}]' > "$3"
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def line(python: Path, model: Path, *, offloads: bool = False, **given: object) -> list[str]:
    settings = SglangSettings.model_validate({"python": str(python), **given})
    return server_command(settings, setup_at(model, model, offloads=offloads))


def test_shipped_release_is_not_queried(tmp_path: Path) -> None:
    python = python_with(tmp_path, "0.5.23")  # an empty file, which cannot list arguments
    model = server_model({"python": str(python)})
    assert model.model_fields["mem_fraction_static"].annotation is float
    assert "flashinfer" in str(model.model_fields["attention_backend"].annotation)
    assert (model.model_fields["log_level"].description or "").startswith("The logging level")
    assert len(model.model_fields) > 500
    assert {each.kind for each in server_arguments(python)} == set(ArgumentKind)


def test_other_release_is_queried_once(tmp_path: Path) -> None:
    python, log = python_with(tmp_path, "0.5.24"), tmp_path / "log"
    python.write_text(ASKED.format(log=log), "utf-8")
    assert list(server_model({"python": str(python)}).model_fields) == ["brand_new"]
    server_arguments.cache_clear()
    assert [each.default for each in server_arguments(python)] == [3]
    assert log.read_text("utf-8") == "called\n"


def test_server_settings_are_on_the_command_line(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    python = python_with(tmp_path, "0.5.23")
    server = {"dllm_fdfo": False, "log_level": "info", "disable_overlap_schedule": False, "lora_paths": ["a", "b"]}
    words = line(python, model, server=server)
    assert "--no-dllm-fdfo" in words
    assert "--disable-overlap-schedule" not in words  # this package's default
    assert words[words.index("--log-level") + 1] == "info"
    assert words[words.index("--lora-paths") + 1 :][:2] == ["a", "b"]


@table(
    "gpus, server, split",
    [
        (8, {}, "8"),
        (8, {"dp_size": 2}, "4"),
        (8, {"data_parallel_size": 2, "pipeline_parallel_size": 2}, "2"),
        (8, {"attn_dp_size": 4}, "8"),
        (8, {"dp_size": 4, "enable_dp_attention": True}, "8"),
    ],
)
def test_gpus_are_divided_as_in_sglang(tmp_path: Path, gpus: int, server: dict[str, JsonValue], split: str) -> None:
    words = line(python_with(tmp_path, "0.5.23"), write_tiny_model(tmp_path / "model"), gpus=gpus, server=server)
    assert words[words.index("--tp-size") + 1] == split
    shared = layout_of(SglangSettings(gpus=8, server={"attn_dp_size": 4}))
    assert (shared.tp_size, shared.head_shards) == (8, 2)


@table(
    "settings, message",
    [
        ({}, "SGLang 0.5.23 on the CPU; samples differ from run to run"),
        ({"deterministic": True}, "on the CPU; it samples with the run's seeds, slower, and without a prefix cache"),
        ({"deterministic": True, "gpus": 1}, "on 1 GPU; it samples with the run's seeds, slower$"),
        ({"gpus": 4, "server": {"dp_size": 2}}, "on 4 GPUs, dp_size 2; samples differ"),
    ],
)
def test_plan_describes_servers_and_determinism(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    python = str(python_with(tmp_path, "0.5.23"))
    assert re.search(message, explain(SglangSettings.model_validate({**settings, "python": python})))


@table("gpus, offloads", [(1, True), (1, False), (0, True)])
def test_offloading_enables_the_memory_saver(tmp_path: Path, gpus: int, offloads: bool) -> None:
    model = write_tiny_model(tmp_path / "model")
    words = line(python_with(tmp_path, "0.5.23"), model, gpus=gpus, offloads=offloads)
    assert ("--enable-memory-saver" in words) == bool(gpus and offloads)


def test_installed_release_is_detected(tmp_path: Path) -> None:
    assert installed_version(python_with(tmp_path / "venv", "0.5.12.post1")) == "0.5.12.post1"
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho sglang 0.5.20\n", "utf-8")
    python.chmod(0o755)
    assert installed_version(python) == "0.5.20"
    python.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    assert installed_version(python) is None


def use(model: Path, engines: int = 1, sampling: SamplingParams | None = None, **config: object) -> EngineUse:
    return EngineUse(model, {"num_attention_heads": 4, **config}, engines, sampling or SamplingParams(8))


@table("version", ["0.4.10.post2", "0.5.8", "0.5.9", "0.5.12.post1", "0.5.23", "0.5.23.post2", "0.5.24", "0.6.0rc1"])
def test_releases_are_accepted_warned_about_or_refused(tmp_path: Path, version: str) -> None:
    settings = SglangSettings(python=python_with(tmp_path / version, version))
    if version in ("0.4.10.post2", "0.5.8"):
        with pytest.raises(
            ConfigError, match=f"SGLang {version} in .* is too old: .* 0.5.9 to 0.5.23. Run `pip install"
        ):
            check_use(settings, use(tmp_path))
    elif version in ("0.5.24", "0.6.0rc1"):
        with pytest.warns(SglangWarning, match=f"SGLang {version} in .* is newer than the releases that were tested"):
            check_use(settings, use(tmp_path))
    else:
        check_use(settings, use(tmp_path))


def test_unusable_server_settings_are_refused(tmp_path: Path) -> None:
    python = python_with(tmp_path / "with", "0.5.23")
    bare = python_with(tmp_path / "without", None)
    for settings, run_use, message in (
        (SglangSettings(python=tmp_path / "no"), use(tmp_path), "python = '.*/no' does not exist"),
        (SglangSettings(python=bare), use(tmp_path), r"SGLang is not installed in .*slime-engine-sglang\[server\]"),
        (SglangSettings(python=python, gpus=3), use(tmp_path), "4 attention heads, .* over 3 GPUs. .* 1, 2, 4"),
        (
            SglangSettings(python=python, gpus=4),
            use(tmp_path, num_attention_heads=None, text_config={"num_attention_heads": 6}),
            "has 6 attention heads",
        ),
        (
            SglangSettings(python=python, gpus=6, server={"dp_size": 2}),
            use(tmp_path),
            "4 attention heads, .* over 3 GPUs. .* 2, 4, 8",
        ),
        (
            SglangSettings(python=python, gpus=6, server={"dp_size": 2, "pp_size": 2}),
            use(tmp_path),
            "gpus = 6, .* which make 4 parts. Set gpus to a multiple of 4",
        ),
        (
            SglangSettings(python=python, server={"speculative_algorithm": "NGRAM"}),
            use(tmp_path),
            "speculative_algorithm = 'NGRAM' with gpus = 0: on a CPU, SGLang .* the likeliest token",
        ),
        (
            SglangSettings(python=python, deterministic=True),
            use(tmp_path, sampling=SamplingParams(8, min_p=0.1)),
            "rollout_min_p = 0.1 with .* deterministic = true",
        ),
        (SglangSettings(urls=["http://a:1"]), use(tmp_path, engines=2), "lists 1 servers, and the run has 2 engines"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_use(settings, run_use)


def test_reading_arguments_imports_no_sglang() -> None:
    code = (
        "import sys; from slime_engine_sglang.arguments import server_model; server_model({}); "
        "print(sorted({each.partition('.')[0] for each in sys.modules} & {'sglang', 'torch', 'numpy', 'aiohttp'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.server
@pytest.mark.timeout(1200)
def test_shipped_arguments_match_the_release(tmp_path: Path) -> None:
    needs_servers()
    if installed_version(PYTHON) != NEWEST:
        pytest.skip(f"the servers' environment has {installed_version(PYTHON)}; the shipped list is for {NEWEST}")

    def listed(path: Path) -> list[object]:
        # SGLang's help contains sets, whose order varies.
        return [{**each, "help": sorted(each["help"])} for each in json.loads(path.read_text("utf-8"))]

    listed_file = tmp_path / "listed.json"
    subprocess.run([PYTHON, "-P", LIST_SCRIPT, listed_file, "sglang"], check=True, capture_output=True)
    assert listed(listed_file) == listed(SHIPPED)
