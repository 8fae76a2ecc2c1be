"""Environments of `verifiers` as a run has them: in worker processes, over HTTP, against an engine with a script."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from run_generator import generated, generator_named
from talker import Talker

from slime_core import Sample, Status
from slime_core.data import HfTokenizer
from slime_core.errors import ConfigError
from slime_core.sample import Json
from slime_testing import make_pending

pytest.importorskip("verifiers.envs", reason="needs the extra `verifiers`")

HERE = Path(__file__).parent
FILE = f"{HERE}/some_environments.py"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": %d, "b": 25}}\n</tool_call>'


def play(talker: Talker, environment: str, *rows: dict[str, Json], **settings: object) -> list[list[Sample]]:
    """The samples of some rows, all at once."""
    generator = generator_named("verifiers", environment=f"{FILE}{environment}", workers=1, **settings)
    pending = [make_pending(prompt=row["prompt"], label=row["answer"]) for row in rows]  # type: ignore[arg-type]
    for sample, row in zip(pending, rows, strict=True):
        sample.metadata = dict(row["metadata"])  # type: ignore[arg-type, call-overload]
    return generated(generator, talker, *pending, seconds=120.0)


@cache
def rows_of(environment: str) -> list[dict[str, Json]]:
    """What the command writes."""
    command = [sys.executable, "-m", "slime_agent_openai.verifiers_agent", f"{FILE}{environment}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def saying(*texts: str) -> Callable[[str, int], str]:
    return lambda prompt, turn: texts[turn]


def test_environment_dataset_becomes_prompts() -> None:
    first, second = rows_of("")
    assert first["prompt"] == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "17 + 25?"}]
    assert (first["answer"], second["answer"]) == ("42", "3")
    metadata = first["metadata"]
    assert isinstance(metadata, dict)
    assert (metadata["example_id"], json.loads(str(metadata["info"]))) == (0, {"hard": True})


def test_single_turn_environment_is_scored_by_its_rubric(tokenizer: HfTokenizer) -> None:
    talker = Talker(tokenizer, lambda prompt, turn: "It is 42.")
    made = play(talker, "", *rows_of(""), arguments={"bonus": 2.0})
    (right,), (wrong,) = made
    assert (right.status, wrong.status) == (Status.COMPLETED, Status.COMPLETED)
    assert right.reward == {"score": 2.0, "right": 1.0, "hard": 2.0, "num_turns": 1.0}
    assert wrong.reward == {"score": 0.0, "right": 0.0, "hard": 0.0, "num_turns": 1.0}
    assert right.metadata["stop_condition"] == "max_turns_reached"
    assert "turn_rewards" not in right.metadata
    assert tokenizer.decode(talker.log[0].prompt).startswith("system\nBe short.")
    assert right.effective_response_length == len(talker.log[0].output)


def test_environment_tools_run_and_steps_are_rewarded(tokenizer: HfTokenizer) -> None:
    talker = Talker(tokenizer, saying(CALL % 17, CALL % -1, "It is 42."))
    ((sample,),) = play(talker, ":load_tools", rows_of(":load_tools")[0])
    assert (sample.status, sample.failure_reason) == (Status.COMPLETED, None)
    assert isinstance(sample.reward, dict)
    assert sample.reward["score"] == 1.0
    assert (sample.reward["num_turns"], sample.reward["total_tool_calls"]) == (3.0, 2.0)
    assert "\n42\n" in tokenizer.decode(talker.log[1].prompt)
    assert "no such number" in tokenizer.decode(talker.log[2].prompt)
    assert sample.effective_response_length == sum(len(asked.output) for asked in talker.log)
    first = len(talker.log[0].output)
    turns = sample.metadata["turn_rewards"]
    assert isinstance(turns, list)
    assert turns[0] == [first, 0.25]
    assert turns[-1] == [sample.response_length, 0.0]
    assert len(turns) == 3


def test_rollout_cut_by_max_turns_is_scored(tokenizer: HfTokenizer) -> None:
    talker = Talker(tokenizer, saying(CALL % 17, CALL % 18))
    ((sample,),) = play(talker, ":load_tools", rows_of(":load_tools")[1], max_turns=1)
    assert (sample.status, sample.failure_reason) == (Status.TRUNCATED, None)
    assert isinstance(sample.reward, dict)
    assert (sample.reward["score"], sample.reward["num_turns"]) == (0.0, 1.0)
    assert len(talker.log) == 1


def test_environment_error_fails_the_sample(tokenizer: HfTokenizer) -> None:
    talker = Talker(tokenizer, saying("never"))
    row = rows_of(":load_tools")[0] | {
        "prompt": [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/a.png"}}]}
        ]
    }
    ((sample,),) = play(talker, ":load_tools", row)
    assert (sample.status, sample.failure_reason) == (Status.FAILED, "agent_EnvironmentFailed")
    assert "ModelError" in str(sample.metadata["failure_detail"])


@pytest.mark.parametrize(
    ("environment", "settings", "said"),
    [
        (":load_groups", {}, "has a reward that needs a whole group"),
        (":load_nothing", {}, "returned {'no': 'environment'}, which is not an environment of verifiers"),
        ("", {"arguments": {"malus": 1.0}}, "unexpected keyword argument 'malus'"),
    ],
)
def test_unusable_environment_is_refused_at_start(
    tokenizer: HfTokenizer, environment: str, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        play(Talker(tokenizer, saying("never")), environment, **settings)
