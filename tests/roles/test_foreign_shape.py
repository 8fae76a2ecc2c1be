"""Functions of other frameworks are refused at plan, with what to pass them."""

from collections.abc import Callable
from typing import Any

import pytest

from slime_core import RewardSpec
from slime_core.roles.rewards import misfit
from tests.tables import table

Slime = Callable[..., Any]
Project = Any
FUNCTIONS = """
def trl(completions, **kwargs):
    return [float(text == gold) for text, gold in zip(completions, kwargs["answer"])]

async def trl_async(prompts, completions, solution, **kwargs):
    return [float(text == gold) for text, gold in zip(completions, solution)]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(data_source == "openai/gsm8k" and solution_str == ground_truth and extra_info["difficulty"])

def openrlhf(queries, prompts, labels):
    return [float(query.endswith(label)) for query, label in zip(queries, labels)]

def verifiers(completion, answer, **kwargs):
    return float(completion == answer)

def with_column(completions, ground_truth, difficulty):
    return [float(text == gold) * hard for text, gold, hard in zip(completions, ground_truth, difficulty)]

def with_prompt(prompt, completion, target):
    return float(completion == target)
"""


@table(
    "name, passed",
    [
        ("trl", "completions=[sample.response]"),
        ("trl_async", "prompts=[sample.prompt], completions=[sample.response], solution=[sample.label]"),
        ("compute_score", 'data_source=sample.metadata["data_source"], solution_str=sample.response, ground_truth='),
        ("openrlhf", "queries=[sample.prompt + sample.response], prompts=[sample.prompt], labels=[sample.label]"),
        ("verifiers", "completion=sample.response, answer=sample.label"),
        ("with_column", "ground_truth=[sample.label], difficulty=[sample.metadata['difficulty']]"),
        ("with_prompt", "prompt=sample.prompt, completion=sample.response, target=sample.label"),
    ],
)
def test_a_foreign_function_is_refused_with_what_to_pass_it(name: str, passed: str) -> None:
    scope: dict[str, Any] = {}
    exec(FUNCTIONS, scope)  # noqa: S102
    why = misfit(scope[name], name, "reward") or ""
    assert "Choose a function of (sample, ctx) that calls it with " in why
    assert passed in why


@table(
    "name, calls",
    [
        ("trl", "calls it with completions=[sample.response for sample in samples]"),
        ("with_column", "difficulty=[sample.metadata['difficulty'] for sample in samples]"),
        ("verifiers", "calls it for each sample with completion=sample.response, answer=sample.label"),
    ],
)
def test_a_foreign_function_for_a_group_is_refused_with_what_to_pass_it(name: str, calls: str) -> None:
    scope: dict[str, Any] = {}
    exec(FUNCTIONS, scope)  # noqa: S102
    why = misfit(scope[name], name, "group_reward") or ""
    assert "Choose a function of (samples, ctx) that calls it" in why
    assert calls in why


def test_functions_that_fit_are_left_alone() -> None:
    def keywords(s: object, c: object, *, scale: float = 1.0) -> None: ...

    def optional(sample: object, ctx: object, solution: str = "") -> None: ...

    async def plain(sample: object, ctx: object) -> None: ...

    for fits in (keywords, optional, plain, lambda *args: 0.0, lambda prompt, ctx: 0.0, print):
        assert misfit(fits, "fits", "reward") is None


def test_a_plan_refuses_what_fits_no_role_and_says_what_to_write(project: Project, slime: Slime) -> None:
    slimes = "async def rm(args, sample, **kwargs): ...\nasync def generate(args, sample, sampling_params): ...\n"
    (project.root / "foreign.py").write_text(f"{FUNCTIONS}\n{slimes}\ndef one(sample): ...\n")
    table = [
        ("--reward", "trl", "completions=[sample.response]"),
        ("--reward", "compute_score", "ground_truth=sample.label"),
        ("--reward", "verifiers", "completion=sample.response, answer=sample.label"),
        ("--reward", "one", "one(sample) cannot be called as `def one(sample, ctx)`"),
        ("--reward", "rm", 'Choose "rm" of slime-compat'),
        ("--group-reward", "trl", "completions=[sample.response for sample in samples]"),
        ("--group-reward", "rm", 'Choose "group_rm" of slime-compat'),
        ("--generator", "generate", 'Choose "generate" of slime-compat'),
        ("--generator", "trl", "cannot be called as `async def trl(sample, ctx)`"),
    ]
    wrong = []
    for flag, name, said in table:
        ran = slime("plan", "run.toml", flag, f"./foreign.py:{name}")
        if ran.code == 0 or said not in ran.err:
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
    assert "completions=[sample.response]" in ran.err
