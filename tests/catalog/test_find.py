"""Choices by name: plain, qualified, in the project; and what is said when there is none."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from slime_core.catalog import Catalog, RegisteredChoice
from slime_core.catalog.project_code import methods_of
from slime_core.errors import ConfigError, PluginError, SlimeError, UnknownName
from slime_core.roles import SPECS, BufferContext, BufferFilter, RewardContext, RewardSpec, Selection, Settings, Setup
from slime_testing import make_group, make_sample
from tests.catalog.sources import reward_plugin
from tests.tables import table

Install = Callable[..., None]

PROJECT = """
from slime_core import RewardSpec, Score, Settings
from slime_core.roles import BufferFilter, Keep, Selection


class Limits(Settings):
    limit: int = 3


async def short(sample, ctx):
    return Score(float(len(sample.response) < 3))


def plain(sample, ctx):
    return Score(1.0)


async def one_argument(sample):
    return Score(1.0)


class Short:
    def __init__(self, settings: Limits, setup):
        self.limit = settings.limit

    async def __call__(self, sample, ctx):
        return Score(float(len(sample.response) < self.limit))


class Three:
    def __init__(self, settings, setup, more): ...

    async def __call__(self, sample, ctx): ...


class Unnamed:
    def __init__(self, settings: "NoSuchModel", setup): ...

    async def __call__(self, sample, ctx): ...


SPEC = RewardSpec("named", lambda settings, setup: short, Limits)
NUMBER = 3


def keep(group, ctx):
    return Keep()


def newest(groups, want, ctx):
    return Selection(take=list(range(len(groups)))[::-1][:want])


class Newest:
    def select(self, groups, want, ctx):
        return newest(groups, want, ctx)


class NoSelect:
    pass


class Inherits(BufferFilter):
    pass


def yields(sample, ctx):
    yield Score(1.0)


def one_batch(batch):
    return batch


def of_groups(groups, ctx):
    return []


async def of_group(samples, ctx):
    return []


class Log:
    async def log(self, step, metrics): ...

    async def close(self): ...


class Static:
    @staticmethod
    async def __call__(sample, ctx):
        return Score(1.0)
"""


@pytest.fixture
def catalog(project: Path) -> Catalog:
    return Catalog.discover()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a file that holds choices; the import path is put back afterwards."""
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PROJECT)
    return tmp_path


def setup() -> Setup:
    return Setup(make=None, seed=1)  # type: ignore[arg-type]  # nothing here builds another choice


def built(found: RegisteredChoice, **settings: object) -> object:
    return found.spec.factory(found.spec.model.model_validate(settings), setup())


def score(reward: object, response: str) -> object:
    sample = make_sample(response=response)
    return asyncio.run(reward(sample, RewardContext(0, False, 1)))  # type: ignore[operator]


def test_a_unique_name_needs_no_plugin(catalog: Catalog) -> None:
    assert catalog.find("reward", "math") is catalog.find("reward", "slime-reward-math/math")


def test_a_name_that_two_plugins_offer_must_be_qualified(install_plugin: Install) -> None:
    install_plugin("slime-reward-zzz", {"zzz.py": reward_plugin("math")}, entry_points={"reward-zzz": "zzz"})
    catalog = Catalog.discover()
    with pytest.raises(ConfigError, match="write slime-reward-math/math or slime-reward-zzz/math"):
        catalog.find("reward", "math")
    assert catalog.find("reward", "slime-reward-zzz/math").dist == "slime-reward-zzz"


@table(
    "role, name, sentences",
    [
        ("reward", "mth", ["no reward 'mth'. Did you mean 'math'?", "math (slime-reward-math 0.1.0)"]),
        ("buffer_filter", "filo", ["no buffer filter 'filo'. Did you mean 'fifo'?"]),
        (
            "reward",
            "slime-reward-mth/math",
            ["There is no plugin 'slime-reward-mth'. Did you mean 'slime-reward-math'?"],
        ),
        ("reward", "slime-reward-math/mat", ["Did you mean 'slime-reward-math/math'?"]),
        ("rewrd", "math", ["no role 'rewrd'. Did you mean 'reward'? Roles: data_source, generator"]),
    ],
)
def test_an_unknown_name_lists_what_exists(catalog: Catalog, role: str, name: str, sentences: list[str]) -> None:
    with pytest.raises(UnknownName) as caught:
        catalog.find(role, name)
    for sentence in sentences:
        assert sentence in str(caught.value)


def test_without_any_plugin_the_way_to_install_one_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [])
    with pytest.raises(UnknownName) as caught:
        Catalog.discover().find("reward", "math")
    text = str(caught.value)
    assert "No loaded plugin offers a reward." in text
    assert "pip install -e . -e ./plugins/slime-reward-math" in text
    assert "slime-core itself is not installed, only importable; in its checkout: pip install -e ." in text


@table("name", ["./mine.py:short", "mine.py:short", "mine:short", "mine.short"])
def test_a_function_of_the_project_is_a_reward(catalog: Catalog, project: Path, name: str) -> None:
    found = catalog.find("reward", name)
    assert found.qualified == name
    assert found.origin == f"{project}/mine.py:10"
    assert score(built(found), "ab") == score(built(catalog.find("reward", found.qualified)), "ab")


def test_a_class_of_the_project_is_a_reward_with_settings(catalog: Catalog, project: Path) -> None:
    found = catalog.find("reward", f"{project}/mine.py:Short")
    assert found.spec.model.model_fields.keys() == {"limit"}
    assert score(built(found, limit=9), "abcd") != score(built(found, limit=2), "abcd")


def test_a_file_is_imported_once(project: Path) -> None:
    (project / "counted.py").write_text(f"import mine\nprint('imported')\n{PROJECT}")
    first, second = (Catalog.discover().find("reward", "./counted.py:SPEC").spec for _ in range(2))
    assert first is second


@table("name", ["./mine.py:newest", "./mine.py:Newest"])
def test_a_function_or_class_of_the_project_is_a_buffer_filter(catalog: Catalog, project: Path, name: str) -> None:
    buffer_filter = built(catalog.find("buffer_filter", name))
    assert isinstance(buffer_filter, BufferFilter)
    groups = [make_group(draw) for draw in range(3)]
    assert buffer_filter.select(groups, 2, BufferContext(0, 0)) == Selection(take=[2, 1])


@table(
    "role, name",
    [
        ("reward", "plain"),
        ("reward", "short"),
        ("reward", "Static"),
        ("group_reward", "of_groups"),
        ("group_reward", "of_group"),
        ("generator", "short"),
        ("sample_filter", "of_groups"),
        ("reward_shaper", "of_groups"),
        ("advantage", "one_batch"),
        ("loss", "one_batch"),
        ("correction", "one_batch"),
        ("tracker", "Log"),
    ],
)
def test_every_role_takes_code_of_the_project(catalog: Catalog, project: Path, role: str, name: str) -> None:
    found = catalog.find(role, f"./mine.py:{name}")
    assert type(found.spec) is SPECS[role]
    assert found.spec.name == name
    assert found.origin.startswith(f"{project}/mine.py:")
    assert built(found) is not None


def test_the_shape_of_every_role_can_be_read_off_its_protocol() -> None:
    for role in SPECS:
        assert methods_of(role), role
    assert [method.source_form(method.name) for method in methods_of("tracker")] == [
        "async def log(step, metrics)",
        "async def close()",
    ]


@table(
    "role, name, error, expected",
    [
        ("reward", "./none.py:short", UnknownName, "no file ./none.py: looked for /"),
        ("reward", "no_such_module_here.short", UnknownName, "no module 'no_such_module_here': looked in /"),
        ("reward", "./mine.py", UnknownName, r"does not say which object: write \./mine\.py:NAME"),
        (
            "reward",
            "./mine.py:shrt",
            UnknownName,
            r"has no 'shrt'\. Did you mean 'short'\? It has Limits, short, plain",
        ),
        (
            "reward",
            "./mine.py:one_argument",
            PluginError,
            r"one_argument\(sample\) cannot be called as `def one_arg",
        ),
        ("reward", "./mine.py:NUMBER", PluginError, "NUMBER is a int; expected a function, a class or a spec"),
        ("reward", "./mine.py:Newest", PluginError, "there is no Newest.__call__; a reward has `def __call__"),
        ("reward", "./mine.py:Three", PluginError, r"Three\(settings, setup, more\): expected no arguments or"),
        ("reward", "./mine.py:Unnamed", PluginError, "name 'NoSuchModel' is not defined"),
        ("reward", "./mine.py:_x", UnknownName, "has no '_x'"),
        ("group_filter", "./mine.py:SPEC", PluginError, "is a RewardSpec; expected a GroupFilterSpec"),
        ("group_filter", "./mine.py:short", PluginError, r"short is `async def`; a group filter is `def short"),
        (
            "buffer_filter",
            "./mine.py:NoSelect",
            PluginError,
            "there is no NoSelect.select; a buffer filter has `def select",
        ),
        (
            "engine",
            "./mine.py:Short",
            PluginError,
            "Short is not an EngineSpec; an engine needs a spec",
        ),
        ("tracker", "./mine.py:short", PluginError, r"short is a function; a tracker is a class with `async def log\("),
        ("reward", "./mine.py:yields", PluginError, "yields holds a `yield`, so that calling it runs nothing"),
        ("generator", "./mine.py:plain", PluginError, "plain is not `async def`; a generator is `async def plain"),
        ("buffer_filter", "./mine.py:Inherits", PluginError, "there is no Inherits.select; a buffer filter has"),
        ("reward", "./broken.py:f", PluginError, r"broken\.py cannot be imported: ZeroDivisionError.*broken\.py:1"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_used(
    catalog: Catalog, project: Path, role: str, name: str, error: type[SlimeError], expected: str
) -> None:
    (project / "broken.py").write_text("1 / 0")
    with pytest.raises(error, match=expected):
        catalog.find(role, name)


def factory(settings: Settings, setup: Setup, *, strict: bool = False) -> object:
    return None


LINE = f"{__file__}:{factory.__code__.co_firstlineno}"


@table("made, origin", [(factory, LINE), (partial(factory, strict=True), LINE), (dict, "builtins")])
def test_the_origin_is_the_place_of_the_factory(made: Callable[..., object], origin: str) -> None:
    assert RegisteredChoice(RewardSpec("one", made), "p/one", "p", "p", "1.0").origin == origin
