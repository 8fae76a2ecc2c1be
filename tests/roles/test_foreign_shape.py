"""Functions of other frameworks are refused at plan."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from slime_core import RewardSpec
from slime_core.roles.rewards import signature_error
from tests.tables import table

Slime = Callable[..., Any]
Project = Any
FUNCTIONS = """
def trl(completions, **kwargs):
    return [float(text == gold) for text, gold in zip(completions, kwargs["answer"])]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(data_source == "openai/gsm8k" and solution_str == ground_truth and extra_info["difficulty"])

def openrlhf(queries, prompts, labels):
    return [float(query.endswith(label)) for query, label in zip(queries, labels)]

def verifiers(completion, answer, **kwargs):
    return float(completion == answer)
"""


@table("name", [*re.findall(r"def (\w+)", FUNCTIONS)])
def test_a_foreign_function_is_refused(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(FUNCTIONS, scope)  # noqa: S102
    for role, taken in (("reward", "sample, ctx"), ("group_reward", "samples, ctx")):
        why = signature_error(scope[name], name, role) or ""
        assert f"it is for another framework. Write a function of ({taken}) that calls it" in why


def test_functions_that_fit_are_left_alone() -> None:
    def keywords(s: object, c: object, *, scale: float = 1.0) -> None: ...

    def optional(sample: object, ctx: object, solution: str = "") -> None: ...

    async def plain(sample: object, ctx: object) -> None: ...

    for fits in (keywords, optional, plain, lambda *args: 0.0, lambda prompt, ctx: 0.0, print):
        assert signature_error(fits, "fits", "reward") is None


def test_a_plan_refuses_what_fits_no_role_and_says_what_to_write(project: Project, slime: Slime) -> None:
    slimes = "async def rm(args, sample, **kwargs): ...\nasync def generate(args, sample, sampling_params): ...\n"
    (project.root / "foreign.py").write_text(f"{FUNCTIONS}\n{slimes}\ndef one(sample): ...\n")
    table = [
        ("--reward", "trl", "that calls it with sample.response"),
        ("--reward", "one", "one(sample) cannot be called as `def one(sample, ctx)`"),
        ("--reward", "rm", 'Choose "rm" of slime-compat'),
        ("--group-reward", "rm", 'Choose "group_rm" of slime-compat'),
        ("--generator", "generate", 'Choose "generate" of slime-compat'),
        ("--generator", "trl", "cannot be called as `async def trl(sample, ctx)`"),
    ]
    wrong = []
    for flag, name, message in table:
        ran = slime("plan", "run.toml", flag, f"./foreign.py:{name}")
        if ran.code == 0 or message not in ran.err:
            wrong.append((flag, name, ran.code, ran.err))
    assert not wrong


def test_a_plugin_cannot_offer_a_foreign_function() -> None:
    def foreign(completions: list[str], **kwargs: object) -> float:
        return 0.0

    with pytest.raises(TypeError, match=r"foreign\(completions.* cannot be called as `def foreign\(sample, ctx\)`"):
        RewardSpec.from_function("foreign", foreign)  # type: ignore[arg-type]


def test_a_reward_that_a_factory_makes_is_looked_at_when_it_is_built(project: Project, slime: Slime) -> None:
    (project.root / "made.py").write_text(
        "from slime_core import RewardSpec\n\n"
        "class Foreign:\n    async def __call__(self, completions, answer): ...\n\n"
        "spec = RewardSpec('made', lambda settings, setup: Foreign())\n"
    )
    ran = slime("plan", "run.toml", "--reward", "./made.py:spec")
    assert ran.code != 0
    assert "it is for another framework" in ran.err
