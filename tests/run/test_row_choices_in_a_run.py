"""Rows and evaluation sets that choose for themselves, in real runs; and unknown names, refused before any process."""

from typing import Any

import pytest

from tests.conftest import Project, Slime
from tests.run.reading import metrics, samples
from tests.tables import table

OWN = '''
from slime_core import Score
from slime_core.rollout import SingleTurn


async def always(sample, ctx):
    """A constant."""
    return Score(0.25)


async def shouts(sample, ctx):
    """The default generator, louder."""
    [made] = await SingleTurn()(sample, ctx)
    made.response = "LOUD"
    return [made]
'''


@pytest.fixture
def own(project: Project) -> Project:
    (project.root / "own.py").write_text(OWN)
    return project


def row(number: int, **metadata: object) -> dict[str, Any]:
    return {"question": f"What is {number}+1?", "answer": str(number + 1), "metadata": metadata}


def test_rows_choose_their_reward_and_generator(own: Project, slime: Slime) -> None:
    own.write_rows(
        "prompts.jsonl",
        [
            row(0),
            row(1, rm_type="./own.py:always"),
            row(2, rm_type="math", custom_rm_path="./own.py:always"),
            row(3, generate_function_path="./own.py:shouts"),
        ],
    )
    slime.ok("train", "run.toml", "--num-rollout", 1)
    by_row = {number: [each for each in samples(own.run) if f":r{number}:" in each["group"]] for number in range(4)}
    assert [each["reward"] for number in (1, 2) for each in by_row[number]] == [0.25] * 8
    assert {each["response"] for each in by_row[3]} == {"LOUD"}
    assert {each["reward"] for each in by_row[3]} == {0.0}  # no digit in it
    assert all(each["response"] != "LOUD" for each in by_row[0])
    [figures] = metrics(own.run)
    assert figures["rollout/reward/./own.py:always"] == 0.25
    assert "rollout/reward/math" not in figures


UNKNOWN: list[tuple[dict[str, object], str]] = [
    ({"rm_type": "mth"}, "prompts.jsonl:2: metadata.rm_type: no reward 'mth'. Did you mean 'math'?"),
    ({"custom_rm_path": "./own.py:alwys"}, "prompts.jsonl:2: metadata.custom_rm_path: reward './own.py:alwys'"),
    (
        {"generate_function_path": "single_tern"},
        "prompts.jsonl:2: metadata.generate_function_path: no generator 'single_tern'. Did you mean 'single_turn'?",
    ),
]


@table("metadata, says, evaluated", [(*each, False) for each in UNKNOWN] + [(*UNKNOWN[0], True)])
def test_an_unknown_name_in_a_row_is_refused_with_its_line(
    own: Project, slime: Slime, metadata: dict[str, object], says: str, evaluated: bool
) -> None:
    own.write_rows("prompts.jsonl", [row(0), row(1, **metadata)])
    if evaluated:
        own.write_prompts("good.jsonl", 2)
        own.write_run(prompt_data="good.jsonl", eval_prompt_data={"held": "prompts.jsonl"}, eval_interval=1)
    for command in ("plan", "train"):
        assert says in slime.refused(command, "run.toml")
    assert not list((own.run / "logs").glob("*"))  # no worker ever wrote one


@table(
    "table, says",
    [
        ({"reward": "mth"}, "eval_prompt_data.held.reward: no reward 'mth'. Did you mean 'math'?"),
        ({"generator": "nobody"}, "eval_prompt_data.held.generator: no generator 'nobody'"),
        ({"max_response_len": 10**6}, "eval_prompt_data.held.max_response_len = 1000000: the model"),
    ],
)
def test_what_an_evaluation_set_chooses_must_exist(
    own: Project, slime: Slime, table: dict[str, Any], says: str
) -> None:
    own.write_run(eval_prompt_data={"held": {"path": "prompts.jsonl", **table}}, eval_interval=1)
    assert says in slime.refused("train", "run.toml")
