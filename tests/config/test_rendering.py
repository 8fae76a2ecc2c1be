"""A prompt is rendered through the chat template once."""

from collections.abc import Callable
from typing import Any

import pytest

Slime = Callable[..., Any]
Project = Any
RENDERS = """
from slime_core import hookimpl
from slime_core.roles import GeneratorSpec

SLIME_API = "1"


async def generate(sample, ctx): ...


@hookimpl
def slime_generators():
    yield GeneratorSpec("speaks", lambda settings, setup: generate, renders_prompts=True)
    yield GeneratorSpec("reads", lambda settings, setup: generate)
"""


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"apply_chat_template": True}, "apply_chat_template"),
        (
            {"eval_interval": 1, "eval_prompt_data": {"few": {"path": "prompts.jsonl", "apply_chat_template": True}}},
            "eval_prompt_data.few.apply_chat_template",
        ),
    ],
)
def test_prompts_are_not_rendered_for_a_generator_that_does_so_itself(
    project: Project, slime: Slime, given: dict[str, object], key: str
) -> None:
    (project.root / "renders.py").write_text(RENDERS)
    plain = {"generator": {"use": "speaks"}, "apply_chat_template": False}
    project.write_run(**{**plain, **given})
    ran = slime("plan", "run.toml", "--plugin", "./renders.py")
    assert ran.code == 2
    assert f"error: {key} = true: generator 'speaks' renders the chat template itself" in ran.err
    project.write_run(**plain)
    assert slime("plan", "run.toml", "--plugin", "./renders.py").code == 0
