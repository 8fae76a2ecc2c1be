"""Flat keys of a stranger's specs: where they land, and what is said about those that cannot have an effect."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest

from slime_core import Settings
from slime_core.catalog import Catalog, PluginWarning
from slime_core.config import FlatKeys, RunConfig, parse_config, read_settings
from slime_core.errors import ConfigError, PluginError
from slime_core.roles import Spec
from slime_core.sample import Json
from tests.tables import table

Install = Callable[..., None]
LEAST: Mapping[str, Json] = {"hf_checkpoint": "m", "save": "s", "num_rollout": 3, "reward": {"use": "math"}}

STRANGER = """
from pydantic import Field

from slime_core import Settings, hookimpl
from slime_core.roles import AdvantageSpec, EngineSpec, LossSpec, TrainerSpec

SLIME_API = "1"


class Whitened(Settings):
    normalize_advantages: bool = Field(False, description="Whiten them.")
    window: int = Field(4, ge=1, description="Steps that are averaged.")


class Wide(Settings):
    dtype: str = Field("float32", description="What it computes in.")
    window: int = Field(4, description="Positions.")


def made_late():
    import slime_stranger_heavy

    return slime_stranger_heavy.Model


def build(settings, setup):
    raise AssertionError


@hookimpl
def slime_advantages():
    yield AdvantageSpec("whitened", build, Whitened, "x", flat_keys=("normalize_advantages", "window"))


@hookimpl
def slime_losses():
    yield LossSpec("ratio_free", build, summary="x", estimator="whitened")


@hookimpl
def slime_engines():
    yield EngineSpec("wide", build, Wide, "x", flat_keys=("window",), flat_prefix="wide_")


@hookimpl
def slime_trainers():
    yield TrainerSpec("late", build, made_late, "x", flat_keys=lambda: ("cut_over",))
    yield TrainerSpec("later", build, made_late, "x", flat_prefix="later_", workers_key="world")
"""

HEAVY = """
from slime_core import Settings

class Model(Settings):
    cut_over: int = 1
    world: int = 1
"""


@pytest.fixture
def stranger(install_plugin: Install) -> Iterator[Catalog]:
    files = {"slime_stranger.py": STRANGER, "slime_stranger_heavy.py": HEAVY}
    install_plugin("slime-stranger", files, entry_points={"stranger": "slime_stranger"})
    yield Catalog.discover()
    sys.modules.pop("slime_stranger_heavy", None)


def parsed(catalog: Catalog, **changes: Json) -> RunConfig:
    return parse_config({**LEAST, **changes}, catalog)


def refused(catalog: Catalog, **changes: Json) -> str:
    with pytest.raises(ConfigError) as raised:
        parsed(catalog, **changes)
    return str(raised.value)


def test_a_loss_that_slime_calls_an_estimator_says_which_goes_with_it(stranger: Catalog) -> None:
    config = parsed(stranger, advantage_estimator="ratio_free", window=2)
    assert (config.roles["advantage"].use, config.roles["loss"].use) == ({"whitened": 1.0}, {"ratio_free": 1.0})
    assert config.roles["advantage"].sections == {"whitened": {"window": 2}}


def test_a_key_of_what_is_not_chosen_is_refused_with_how_to_choose_it(stranger: Catalog) -> None:
    assert refused(stranger, wide_dtype="bfloat16") == (
        "wide_dtype has no effect here: it is a setting of engine 'wide', and engine.use is 'local'; leave it out, or "
        'choose [engine] use = "wide" or --engine wide'
    )
    assert refused(stranger, cut_over=2).startswith(
        "cut_over has no effect here: it is a setting of trainer 'late', and trainer.use is 'local'"
    )
    assert "slime_stranger_heavy" not in sys.modules
    message = refused(stranger, window=2)
    assert "it is a setting of advantage 'whitened' or of engine 'wide', and advantage.use is 'grpo', engine" in message


def test_a_key_that_two_choices_have_is_refused_naming_both(stranger: Catalog) -> None:
    both: dict[str, Json] = {"engine": {"use": "wide"}, "advantage_estimator": "whitened"}
    assert refused(stranger, **both, window=2) == (
        "window is a setting of advantage 'whitened' and of engine 'wide', and this run uses both: write it in the "
        "table of one of them, [advantage.whitened] window = … and [engine.wide] window = …"
    )
    sections = parsed(stranger, **{**both, "engine": {"use": "wide", "wide": {"window": 2}}}).roles["engine"].sections
    assert sections == {"wide": {"window": 2}}


def test_flat_keys_have_the_order_of_their_choice(stranger: Catalog) -> None:
    declared = stranger.find("trainer", "local").spec.flat_names
    assert [key for key in FlatKeys(stranger).owners if key in declared] == [*declared]


def test_a_choice_that_nobody_offers_is_the_trouble_and_not_its_keys(stranger: Catalog) -> None:
    config = parsed(stranger, engine={"use": "wild"}, wide_dtype="bfloat16")
    assert config.roles["engine"].use == {"wild": 1.0}


def test_a_file_of_the_project_has_flat_keys_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: Catalog
) -> None:
    monkeypatch.chdir(tmp_path)
    own = 'OWN = AdvantageSpec("own", build, Whitened, "x", flat_keys=("window",))'
    (tmp_path / "own_estimator.py").write_text(f"{STRANGER}\n{own}\n")
    config = parse_config({**LEAST, "advantage": {"use": "./own_estimator.py:OWN"}, "window": 3})
    assert config.roles["advantage"].sections == {"./own_estimator.py:OWN": {"window": 3}}


def test_late_settings_are_made_when_they_are_read_and_once(stranger: Catalog) -> None:
    spec = stranger.find("trainer", "late").spec
    flat = FlatKeys(stranger)
    assert flat.owners["cut_over"][0].registered.spec is spec
    config = parsed(stranger, trainer={"use": "late"}, cut_over=2)
    assert spec.is_late
    assert "slime_stranger_heavy" not in sys.modules
    settings = read_settings("trainer", "late", spec, config.roles["trainer"].sections["late"])
    assert settings.model_dump() == {"cut_over": 2, "world": 1}
    assert spec.model is type(settings)
    del sys.modules["slime_stranger_heavy"]
    assert spec.model is type(settings)


@pytest.mark.parametrize(
    ("heavy", "message"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("Model = 5", "TypeError: they are 5; expected a subclass of slime_core.Settings"),
    ],
)
def test_settings_that_cannot_be_made_are_blamed_on_their_plugin(
    install_plugin: Install, heavy: str, message: str
) -> None:
    files = {"slime_stranger.py": STRANGER, "slime_stranger_heavy.py": heavy}
    install_plugin("slime-stranger", files, entry_points={"stranger": "slime_stranger"})
    catalog = Catalog.discover()
    expected = f"plugin slime-stranger 1.0: trainer 'late': making its settings raised {message}"
    with pytest.raises(PluginError, match=re.escape(expected)):
        read_settings("trainer", "late", catalog.find("trainer", "late").spec, {})


def test_keys_that_cannot_be_listed_harm_only_who_chooses_them(install_plugin: Install) -> None:
    source = STRANGER.replace('lambda: ("cut_over",)', "lambda: 1 / 0")
    install_plugin("slime-stranger", {"slime_stranger.py": source}, entry_points={"stranger": "slime_stranger"})
    catalog = Catalog.discover()
    with pytest.warns(PluginWarning, match="trainer 'late': listing its keys raised ZeroDivisionError"):
        assert parsed(catalog, eps_clip=0.1).roles["loss"].sections == {"policy_loss": {"eps_clip": 0.1}}
    with pytest.raises(PluginError, match=r"plugin slime-stranger .*listing its keys raised ZeroDivisionError"):
        parsed(catalog, trainer={"use": "late"})


def test_a_choice_that_takes_a_key_of_every_run_cannot_be_chosen(install_plugin: Install) -> None:
    source = STRANGER.replace('lambda: ("cut_over",)', '("lr",)').replace("made_late,", "Lr,", 1)
    source = source.replace("def made_late", "class Lr(Settings):\n    lr: float = 1.0\n\n\ndef made_late", 1)
    install_plugin("slime-stranger", {"slime_stranger.py": source}, entry_points={"stranger": "slime_stranger"})
    catalog = Catalog.discover()
    assert parsed(catalog, lr=1e-3).optim.lr == 1e-3
    with pytest.raises(PluginError, match="slime-stranger: trainer 'late' declares the flat key 'lr', which is a key"):
        parsed(catalog, trainer={"use": "late"})


@table(
    "field, message",
    [
        ({"flat_keys": "one"}, "flat_keys must be several names, write \\('one',\\)"),
        ({"flat_keys": ("nothing",)}, "flat_keys names 'nothing', which is none of its settings"),
        ({"flat_prefix": "wide"}, "flat_prefix 'wide' must be a name that ends in '_'"),
        ({"settings": 5}, "settings must be a model, or a function that makes one"),
    ],
)
def test_a_spec_with_keys_that_cannot_be_is_refused(field: dict[str, object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Spec[object]("name", Settings, **cast(dict[str, str], field))  # type: ignore[arg-type]
