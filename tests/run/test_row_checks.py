"""What `slime plan` and a run's start see in the rows: labels that no answer fits, prompts that do not fit."""

from dataclasses import replace
from pathlib import Path

import pytest

from slime_core.config import EvalSetArgs, RunConfig, parse_config
from slime_core.errors import ConfigError
from slime_core.roles import PromptFile, RowFormat, SamplingParams
from slime_core.run import prompts as row_checks
from slime_core.run.prompts import eval_file, eval_sampling
from slime_core.sample import Json
from tests.conftest import Project, Slime
from tests.tables import table

OWN = '''
import os
import time

from slime_core import RewardSpec


class Hangs:
    def __init__(self, settings, setup): ...

    def __call__(self, sample, ctx):
        return 1.0

    def check_label(self, sample):
        time.sleep(60)


class Dies(Hangs):
    def check_label(self, sample):
        os.abort()


hangs = RewardSpec("hangs", Hangs, timeout_s=0.3)
dies = RewardSpec("dies", Dies)


class Yes:
    """Runs in a worker process, for it is a plain `def`."""

    def __call__(self, sample, ctx):
        return sample.response == sample.label

    def check_label(self, sample):
        return None if sample.label in ("yes", "no") else "neither yes nor no"


async def always(sample, ctx):
    return True


always.check_label = lambda sample: 1 / 0
'''


def rows(*labels: Json) -> list[dict[str, Json]]:
    return [{"question": f"What is {number}?", "answer": label} for number, label in enumerate(labels)]


def test_labels_that_no_answer_fits_are_refused_with_their_rows_or_left_out(project: Project, slime: Slime) -> None:
    project.write_rows("prompts.jsonl", rows("proof", "4", "see above?", {"value": "4"}))
    for command in ("plan", "train"):
        refusal = slime.refused(command, "run.toml", "--reward", "math")
        assert "prompts.jsonl: 3 of 4 rows are bad" in refusal
        assert "prompts.jsonl:1: reward 'math' cannot score its label 'proof': no gold answer" in refusal
        assert all(said in refusal for said in ("prompts.jsonl:3: ", "prompts.jsonl:4: ", "use another label_key"))
    assert not (project.run / "metrics.jsonl").exists()
    project.write_rows("prompts.jsonl", rows(*map(str, range(50)), "proof"))
    refusal = slime.refused("plan", "run.toml", "--reward", "math")
    assert "1 of 51 rows are bad, more than max_bad_row_rate = 0 allows" in refusal
    ran = slime.ok("plan", "run.toml", "--reward", "math", "--max-bad-row-rate", "0.05", "--json")
    assert ran.json()["data"][0]["prompts"] == 50
    (note,) = ran.json()["data_notes"]
    assert note.startswith("prompts.jsonl: left out 1 bad row, the first: prompts.jsonl:51: reward 'math'")


def test_every_reward_that_scores_a_row_is_asked_wherever_it_runs(project: Project, slime: Slime) -> None:
    (project.root / "own.py").write_text(OWN)
    table: list[tuple[str, list[dict[str, Json]], list[str], int, str]] = [
        ("in a process", rows("yes", "7"), ["./own.py:Yes"], 2, ":2: reward './own.py:Yes' cannot score its label '7'"),
        ("in a process, all well", rows("yes", "no"), ["./own.py:Yes"], 0, ""),
        ("the second of two", rows("yes", "proof"), ["./rewards.py:digits", "math=0.5"], 2, ":2: reward 'math'"),
        ("one without a check", rows("yes", {"a": 1}), ["./rewards.py:digits"], 0, ""),
        ("a row's own", [{**rows("proof")[0], "metadata": {"rm_type": "math"}}], ["f1"], 2, ":1: reward 'math'"),
        ("only a row's own", [{**rows("proof")[0], "metadata": {"rm_type": "f1"}}], ["math"], 0, ""),
        ("a check that hangs", rows("yes"), ["./own.py:hangs"], 2, "its check took longer than the reward's time"),
        ("a check that dies", rows("yes"), ["./own.py:dies"], 1, "check_label of reward './own.py:dies' failed"),
        ("a fault of the check", rows("yes"), ["./own.py:always"], 1, "check_label of reward './own.py:always'"),
    ]
    wrong = []
    for name, given, rewards, code, said in table:
        project.write_rows("prompts.jsonl", given)
        ran = slime("plan", "run.toml", *(flag for each in rewards for flag in ("--reward", each)))
        if (ran.code == 0) != (code == 0) or said not in ran.err:
            wrong.append((name, ran.code, ran.err))
    assert not wrong


def test_a_reward_that_needs_labels_without_label_key_is_refused_and_the_flag_is_named(
    project: Project, slime: Slime
) -> None:
    project.write_rows("held.jsonl", [{"question": "What is 1?", "gold": "1"}])
    held: dict[str, Json] = {"eval_interval": 1, "eval_prompt_data": {"held": "held.jsonl"}}
    table: list[tuple[dict[str, Json], list[str]]] = [
        ({"label_key": None}, ["reward 'math' needs a gold answer", "--label-key", "has question, answer"]),
        (held, ["held.jsonl:1: no key 'answer'; the row has question, gold: give --eval-label-key one of these"]),
        (
            {**held, "label_key": None, "reward": {"use": "./rewards.py:digits"}}
            | {"eval_prompt_data": {"held": {"path": "held.jsonl", "reward": "gpqa"}}},
            ["reward 'gpqa' needs a gold answer", "--eval-label-key", "held.jsonl has question, gold"],
        ),
    ]
    wrong = []
    for changes, said in table:
        project.write_run(**({"reward": {"use": "math"}} | changes))
        ran = slime("plan", "run.toml")
        wrong += [(ran.code, ran.err, each) for each in said if each not in ran.err or ran.code != 2]
    assert not wrong


@table("ending", ["jsonl", "parquet"])
def test_a_dotted_label_key_names_a_place_in_a_column(project: Project, slime: Slime, ending: str) -> None:
    given = [{"question": "What is 1?", "reward_model": {"style": "rule", "ground_truth": str(n)}} for n in range(4)]
    path = project.write_rows("verl.jsonl", given)
    if ending == "parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        path = project.root / "verl.parquet"
        parquet.write_table(pa.Table.from_pylist(given), path)
    flags = ["--prompt-data", path, "--reward", "math", "--label-key"]
    ran = slime.ok("plan", "run.toml", *flags, "reward_model.ground_truth", "--json")
    assert ran.json()["data"][0]["label"] == "0"
    assert "no key 'truth'; the row has style, ground_truth: give --label-key" in slime.refused(
        "plan", "run.toml", *flags, "reward_model.truth"
    )
    for key in ("reward_model", "ground_truth"):
        refusal = slime.refused("plan", "run.toml", *flags, key)
        assert "--label-key reward_model" in refusal
        assert "reward_model.ground_truth" in refusal


def test_prompts_that_leave_no_room_for_an_answer_are_refused_and_can_be_left_out(
    project: Project, slime: Slime
) -> None:
    long = {"question": "1+" * 400 + "1?", "answer": "401"}
    held = project.write_rows("held.jsonl", [*rows(*"123456789"), long])
    evaluated = ["--eval-interval", "1", "--eval-prompt-data", "held", held, "--reward", "math"]
    for command in ("plan", "train"):
        refusal = slime.refused(command, "run.toml", *evaluated)
        assert "held.jsonl:10: its prompt has " in refusal
        assert "may have 256" in refusal
    skipped = slime.ok("plan", "run.toml", *evaluated, "--max-bad-row-rate", "0.2", "--json")
    assert [each["prompts"] for each in skipped.json()["data"]] == [8, 9]
    assert "eval:held: left out 1 bad row" in skipped.json()["data_notes"][0]
    refusal = slime.refused("plan", "run.toml", "--prompt-data", held, "--reward", "math")
    assert "--rollout-max-prompt-len 255 leaves such prompts out" in refusal
    assert "shorten them" in refusal
    command = ["eval", project.model, *evaluated[2:], "--input-key", "question", "--label-key", "answer"]
    refusal = slime.refused(*command, "--rollout-max-response-len", 32)
    assert "--rollout-max-prompt-len" not in refusal
    assert slime("plan", "run.toml", "--prompt-data", held, "--rollout-max-prompt-len", "255").code == 0


def test_a_plan_shows_each_data_set_as_the_model_gets_it(project: Project, slime: Slime) -> None:
    project.write_rows("held.jsonl", [{"question": "\x1b[2J" + "why " * 30, "answer": "so"}])
    ran = slime.ok("plan", "run.toml", "--eval-interval", "1", "--eval-prompt-data", "held", "held.jsonl")
    text = " ".join(ran.out.split())
    assert "data prompts.jsonl 8 prompts" in text
    assert "data eval:held 1 prompts" in text
    assert r"\x1b[2Jwhy why" in text
    assert "\x1b[2J" not in ran.out
    assert "its label '1'" in text
    described = slime("plan", "run.toml", "--json").json()["data"][0]
    assert described["tokens"].keys() == {"p50", "p99", "max"}
    assert described["context"] == 256
    assert "What is 0+1?" in described["first_prompt"] != "What is 0+1?"


def test_the_labels_of_the_first_rows_are_checked_and_of_all_where_bad_rows_are_left_out(
    project: Project, slime: Slime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_checks, "CHECKED", 30)
    project.write_rows("prompts.jsonl", rows(*map(str, range(30)), "proof"))
    assert slime("plan", "run.toml", "--reward", "math").code == 0
    skipping = slime("plan", "run.toml", "--reward", "math", "--max-bad-row-rate", "0.05", "--json")
    assert "left out 1 bad row" in skipping.json()["data_notes"][0]


SAMPLING: dict[str, Json] = {
    "temperature": 0.9,
    "top_p": 0.8,
    "top_k": 50,
    "min_p": 0.1,
    "no_stop_trim": False,
    "skip_special_tokens": False,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.3,
}
TRAINING = SamplingParams(
    max_new_tokens=100,
    min_new_tokens=7,
    stop=("END",),
    stop_token_ids=frozenset({9}),
    **SAMPLING,  # type: ignore[arg-type]  # each of its type
)
OF_ALL: dict[str, Json] = {
    "eval_prompt_data": {"held": "held.jsonl"},
    "eval_interval": 1,
    "eval_max_response_len": 60,
    "eval_temperature": 0.5,
    "eval_top_p": 0.6,
    "eval_top_k": 20,
    "eval_min_new_tokens": 3,
    "eval_input_key": "asked",
    "eval_label_key": "gold",
}
COLUMNS: dict[str, Json] = {
    "input_key": "question",
    "label_key": "answer",
    "metadata_key": "about",
    "tool_key": "uses",
    "multimodal_keys": {"image": "pictures"},
    "apply_chat_template": True,
    "apply_chat_template_kwargs": {"thinking": True},
    "final_assistant_message": "continue",
}
ROWS = RowFormat(**COLUMNS, max_prompt_len=5, max_bad_row_rate=0.5)  # type: ignore[arg-type]


def config(**changes: Json) -> RunConfig:
    least: dict[str, Json] = {"hf_checkpoint": "m", "save": "s", "num_rollout": 3, "reward": {"use": "math"}}
    return parse_config(least | changes)


def sampling(own: dict[str, Json], **changes: Json) -> SamplingParams:
    return eval_sampling("held", EvalSetArgs.model_validate({"path": "p.jsonl", **own}), config(**changes), TRAINING)


def test_a_sets_own_sampling_comes_first_then_that_of_all_sets_then_training() -> None:
    found = sampling({})
    assert found == replace(TRAINING, min_new_tokens=0)
    own: dict[str, Json] = {
        key: True if value is False else 1.0 if "repet" in key else 0 for key, value in SAMPLING.items()
    }
    own |= {"top_p": 0.1, "top_k": -1, "max_response_len": 30, "min_new_tokens": 0, "stop": [], "stop_token_ids": []}
    found = sampling(own, **OF_ALL)
    assert (found.max_new_tokens, found.stop, found.stop_token_ids) == (30, (), frozenset())
    for key in own.keys() - {"max_response_len", "stop", "stop_token_ids"}:
        assert getattr(found, key) == own[key], key


def test_a_least_length_above_the_budget_is_refused_and_an_equal_one_is_not() -> None:
    assert sampling({"min_new_tokens": 30, "max_response_len": 30}).min_new_tokens == 30
    says = r"'held' asks for at least 31 tokens \(min_new_tokens\) and at most 30 \(max_response_len\)"
    with pytest.raises(ConfigError, match=says):
        sampling({"min_new_tokens": 31, "max_response_len": 30})


def test_columns_of_all_sets_come_before_those_of_training_and_a_sets_own_first() -> None:
    found = eval_file("held", EvalSetArgs(path="held.jsonl"), config(), ROWS)
    expected = replace(ROWS, max_prompt_len=None, flag_prefix="eval-")
    assert found == PromptFile.of(Path("held.jsonl"), "eval:held", expected)
    found = eval_file("held", EvalSetArgs(path="held.jsonl"), config(**OF_ALL), ROWS)
    assert (found.input_key, found.label_key) == ("asked", "gold")
    own: dict[str, Json] = {key: "x" for key in COLUMNS if key.endswith("_key")}
    own |= {"multimodal_keys": {}, "apply_chat_template": False, "apply_chat_template_kwargs": {}}
    own |= {"final_assistant_message": "cut"}
    found = eval_file("held", EvalSetArgs.model_validate({"path": "p", **own}), config(**OF_ALL), ROWS)
    assert {key: getattr(found, key) for key in own} == own
