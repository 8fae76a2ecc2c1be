"""The kit as a third party meets it: names, fixtures, and what it costs to have it installed."""

import asyncio
import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import slime_testing
from slime_core import Sample, Status
from slime_core.catalog import Catalog
from slime_core.roles import DataSource, DataSourceSetup, DataSourceSpec, FinishReason, PromptFile, Settings
from slime_testing import CharTokenizer, DataSourceContract, ScriptedEngine
from tests.tables import table

THIRD_PARTY = """
from slime_core import RewardSpec, Score
from slime_testing import RewardContract, make_sample


async def short(sample, ctx):
    return Score(float(sample.label is None) - len(sample.response))


class TestShort(RewardContract):
    choice = RewardSpec.from_function("short", short)
    good = make_sample(response="4")
    bad = make_sample(response="four")
    {capability}


def test_a_fixture(make_sample):
    assert make_sample(response="4").response == "4"
"""


@table("name", slime_testing.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    value = getattr(slime_testing, name)
    assert name.isupper() or value.__name__ == name


def test_having_the_kit_installed_imports_no_contract() -> None:
    code = "import slime_testing.pytest_plugin, sys; print(*(m for m in sys.modules if 'slime_testing.' in m))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["slime_testing.pytest_plugin"]


@table(
    "line, outcome, said",
    [
        ("", "1 failed, 17 passed, 2 skipped", ["REW-011: label None got Score(value=", "return `Unscored(reason)`"]),
        (
            'xfail = {"REW-011": "known", "REW-003": "well"}',
            "1 failed, 16 passed, 2 skipped, 1 xfailed",
            ["[XPASS(strict)] well"],
        ),
    ],
)
def test_a_third_partys_file_is_run_by_pytest(tmp_path: Path, line: str, outcome: str, said: list[str]) -> None:
    (folder := tmp_path / outcome).mkdir()
    (folder / "test_short.py").write_text(THIRD_PARTY.format(capability=line))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_short.py"]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    assert [each for each in (outcome, *said) if each not in printed] == []


def test_a_made_sample_is_sound(make_sample: Callable[..., Sample]) -> None:
    sample = make_sample(response="four", label=4, reward=1.0, weight_version=3, metadata={"row": 1})
    assert list(sample.problems()) == []
    assert (sample.status, sample.response_length, sample.reward) == (Status.COMPLETED, 4, 1.0)
    assert (sample.weight_versions, sample.metadata) == (["3"], {"row": 1})


@table("finish, length", [(FinishReason.STOP, 4), (FinishReason.LENGTH, 8), (FinishReason.ABORT, 3)])
def test_the_scripted_engine_ends_as_it_is_told(finish: FinishReason, length: int) -> None:
    engine = ScriptedEngine(finish=finish)
    ctx = engine.context(max_new_tokens=8)
    out = asyncio.run(engine.generate(ctx.tokenizer.encode("2 + 2"), ctx.sampling))
    assert (out.finish, len(out.tokens), len(out.log_probs)) == (finish, length, length)
    assert (out.tokens[-1] in ctx.tokenizer.eos_token_ids) == (finish is FinishReason.STOP)


def test_the_character_tokenizer_renders_messages() -> None:
    tokenizer = CharTokenizer()
    text = tokenizer.apply_chat_template([{"role": "user", "content": "2 + 2?"}])
    assert text == "user: 2 + 2?\nassistant: "
    assert tokenizer.decode([*tokenizer.encode(text), 0]) == text


def test_a_fork_of_multiprocessing_leaves_the_prompts_where_they_are() -> None:
    read = list[PromptFile]()
    spec = Catalog.discover().find("data_source", "slime-core/prompts").spec
    assert isinstance(spec, DataSourceSpec)

    def factory(settings: Settings, setup: DataSourceSetup) -> DataSource:
        read.extend(setup.prompts)
        return spec.factory(settings, setup)

    class Source(DataSourceContract):
        __test__ = False
        choice = replace(spec, factory=factory)

    Source().test_the_factory_builds_a_data_source()
    child = multiprocessing.get_context("fork").Process(target=print)
    child.start()
    child.join()
    assert read
    assert all(Path(each.path).is_file() for each in read)
