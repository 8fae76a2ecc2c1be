"""`slime trace`: what a run did when, from a real run of the local trainer."""

import json
from pathlib import Path
from typing import Any

import pytest

from slime_core.telemetry import MetricsLog
from slime_view.samples.shard import Kind, Shard, list_shards
from tests.conftest import Project, Slime

Event = dict[str, Any]

PARTS = """
import asyncio

from slime_core.roles import Drop, Keep


def no_second(group, ctx):
    return Drop("second") if group.id.draw == 1 else Keep()


async def twice(sample, ctx):
    prompt = ctx.tokenizer.encode("What is 1+1?")
    first = await ctx.generate(prompt, ctx.sampling)
    await asyncio.sleep(0.01)
    second = await ctx.generate([*prompt, *first.tokens], ctx.sampling)
    sample.tokens = [*prompt, *first.tokens]
    sample.append_response_tokens(output=second, text=ctx.tokenizer.decode(second.tokens))
    sample.status = type(sample.status).COMPLETED
    return [sample]
"""
ROUNDING = 2
"""Microseconds: each end of a span is rounded to one."""


def test_a_trace_has_rollouts_samples_and_groups(project: Project, slime: Slime) -> None:
    """Of two rollouts of four groups by two turns a sample, the second group dropped, with evaluations."""
    (project.root / "parts.py").write_text(PARTS)
    project.write_run(
        generator={"use": "./parts.py:twice"},
        group_filter={"use": "./parts.py:no_second"},
        eval_prompt_data={"held": "prompts.jsonl"},
        eval_interval=2,
    )
    slime.ok("train", "run.toml")
    events = events_of(slime, project.run)
    check_rollouts(project.run, events)
    check_samples(project.run, events)
    check_groups(project.run, events)


def events_of(slime: Slime, run: Path, *arguments: object) -> list[Event]:
    ran = slime.ok("trace", run, *arguments)
    path = ran.out.splitlines()[-1].partition(": open it")[0]
    document = json.loads(Path(path).read_text("utf-8"))
    assert document["displayTimeUnit"] == "ms"
    return list(document["traceEvents"])


def named(events: list[Event], process: str) -> list[Event]:
    """The complete events of one process."""
    (pid,) = (each["pid"] for each in events if each["ph"] == "M" and each["args"]["name"] == process)
    return [each for each in events if each["pid"] == pid and each["ph"] == "X"]


def inside(events: list[Event], outer: Event) -> list[Event]:
    """What lies in an event, on its track."""
    end = outer["ts"] + outer["dur"]
    return [
        each
        for each in events
        if each is not outer
        and (each["pid"], each["tid"]) == (outer["pid"], outer["tid"])
        and outer["ts"] <= each["ts"] <= each["ts"] + each["dur"] <= end
    ]


def check_rollouts(run: Path, events: list[Event]) -> None:
    rows = {
        row.rollout_id: row.metrics for row in MetricsLog.read(run / "metrics.jsonl") if "perf/step_time" in row.metrics
    }
    loop = named(events, "loop")
    for number, metrics in rows.items():
        (rollout,) = (each for each in loop if each["name"] == f"rollout {number}")
        parts = {each["name"]: each for each in inside(loop, rollout)}
        assert list(parts) == ["generate", "train", "publish"]
        assert sum(each["dur"] for each in parts.values()) == rollout["dur"]
        for part, metric in (("generate", "rollout"), ("train", "train"), ("publish", "update_weights")):
            assert parts[part]["dur"] == pytest.approx(1e6 * metrics[f"perf/{metric}_time"], abs=ROUNDING)
        assert rollout["dur"] == pytest.approx(1e6 * metrics["perf/step_time"], abs=ROUNDING)
        (steps,) = (each for each in named(events, "trainer") if each["args"]["rollout_id"] == number)
        assert parts["train"]["ts"] <= steps["ts"]
        assert steps["ts"] + steps["dur"] <= parts["train"]["ts"] + parts["train"]["dur"]
        assert steps["dur"] == pytest.approx(1e6 * metrics["perf/actor_train_time"], abs=ROUNDING)
    assert {"evaluate", "checkpoint"} <= {each["name"] for each in loop}


def check_samples(run: Path, events: list[Event]) -> None:
    samples = named(events, "samples")
    rows = [row.to_dict() for path in list_shards(run / "samples") for row in Shard(path).rows()]
    kept = {f"{row['group']}/{row['index']}" for row in rows}
    whole = {each["name"]: each for each in samples if "group" in each.get("args", {})}
    assert set(whole) == kept
    for outer in whole.values():
        parts = {each["name"]: each for each in inside(samples, outer)}
        assert {"generate", "turn 1", "turn 2"} <= set(parts) <= {
            "queue", "generate", "turn 1", "turn 2", "reward ./rewards.py:digits"
        }  # fmt: skip
        turns = [parts["turn 1"], parts["turn 2"]]
        assert all(turn in inside(samples, parts["generate"]) for turn in turns)
        assert turns[1]["ts"] - turns[0]["ts"] - turns[0]["dur"] >= 10_000 - ROUNDING  # where it slept
        top = [each for name, each in parts.items() if not name.startswith("turn")]
        assert sum(each["dur"] for each in top) == outer["dur"]
    evaluated = [each for each in named(events, "samples of evaluations") if "group" in each.get("args", {})]
    assert len(evaluated) == sum(len(list(Shard(path).rows())) for path in list_shards(run / "samples", Kind.EVAL))


def check_groups(run: Path, events: list[Event]) -> None:
    groups = [each for each in named(events, "groups") if "state" in each.get("args", {})]
    dropped = [each for each in groups if each["args"]["state"] == "dropped"]
    assert [each["args"]["reason"] for each in dropped] == ["second"]
    assert [each["name"] for each in inside(named(events, "groups"), dropped[0])] == ["samples"]
    trains = {each["args"]["rollout_id"]: each for each in named(events, "loop") if each["name"] == "train"}
    trained = [each for each in groups if each["args"]["state"] == "trained"]
    assert len(trained) == 8
    for each in trained:
        parts = inside(named(events, "groups"), each)
        assert [part["name"] for part in parts] == ["samples", "waits for training", "train"]
        assert sum(part["dur"] for part in parts) == each["dur"]
        assert parts[-1]["ts"] == trains[each["args"]["rollout_id"]]["ts"]


def test_a_run_that_was_continued_says_where_and_a_torn_line_is_cut(project: Project, slime: Slime) -> None:
    project.write_run(num_rollout=1)
    assert slime("train", "run.toml").code == 0
    with (project.run / "spans.jsonl").open("a") as file:
        file.write('{"schema_version":1,"roll')
    assert slime("resume", project.run, "--num-rollout", 2).code == 0
    events = events_of(slime, project.run)
    (resumed,) = (each for each in events if each["ph"] == "i")
    assert resumed["name"] == "resumed after 1 rollouts"
    first, second = (
        next(each for each in named(events, "loop") if each["name"] == f"rollout {number}") for number in range(2)
    )
    assert first["ts"] + first["dur"] <= resumed["ts"] <= second["ts"]
