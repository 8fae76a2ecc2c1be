"""Prompts with media: refused by the plan where they would be dropped, by the name of every part that cannot."""

from pathlib import Path
from typing import Any

import pytest

from slime_core.catalog import Catalog
from slime_core.config import Plan, parse_config, read_run_file, resolve
from slime_core.errors import ConfigError
from slime_core.sample import Json

Project = Any
IMAGES: Json = {"image": "images"}
PLUGIN = """
from slime_core import hookimpl
from slime_core.roles import GeneratorSpec

SLIME_API = "1"


@hookimpl
def slime_generators():
    yield GeneratorSpec("describing", print)
"""


def plan_of(project: Project, **changes: Json) -> Plan:
    (project.root / "mine.py").write_text(PLUGIN)
    plugins: Json = {"modules": ["./mine.py"]}
    path: Path = project.write_run(save=str(project.run), plugins=plugins, **changes)
    config = parse_config(read_run_file(path))
    return resolve(config, Catalog.discover(config.plugins))


def test_every_part_that_cannot_is_named(project: Project) -> None:
    with pytest.raises(ConfigError) as raised:
        plan_of(project, multimodal_keys=IMAGES)
    assert str(raised.value) == (
        "multimodal_keys: prompts with image cannot be used here: generator 'single_turn' gives engines the text of a "
        "prompt alone; engine 'local' takes no media; trainer 'local' reads no multimodal_train_inputs. Leave it out "
        "to train on the text alone, or choose a generator of your own that reads sample.multimodal_inputs"
    )


def test_an_evaluation_set_is_named(project: Project) -> None:
    sets: Json = {"seen": {"path": "prompts.jsonl", "multimodal_keys": {"image": "images", "audio": "sounds"}}}
    with pytest.raises(ConfigError, match=r"^eval_prompt_data.seen.multimodal_keys: prompts with image and audio can"):
        plan_of(project, eval_prompt_data=sets, eval_interval=1)


def test_a_generator_that_may_look_at_them_is_left_alone(project: Project) -> None:
    assert (
        plan_of(project, multimodal_keys=IMAGES, generator={"use": "describing"}).config.data.multimodal_keys == IMAGES
    )


def test_an_evaluation_set_may_have_a_generator_for_them(project: Project) -> None:
    own: dict[str, Json] = {"path": "prompts.jsonl", "multimodal_keys": IMAGES, "generator": "describing"}
    plan_of(project, eval_prompt_data={"seen": own}, eval_interval=1)
    keys: dict[str, Json] = {"generator": {"use": "describing"}, "multimodal_keys": IMAGES, "eval_interval": 1}
    plain: dict[str, Json] = {"path": "prompts.jsonl", "generator": "single_turn"}
    with pytest.raises(ConfigError, match=r"^eval_prompt_data.plain.multimodal_keys"):
        plan_of(project, eval_prompt_data={"plain": plain}, **keys)
