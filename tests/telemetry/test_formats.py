"""Every file a run writes is what docs/formats.md says: real writers, validated against the committed schemas."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pyarrow as pa

from slime_core.run import GroupState, Ledger
from slime_core.run.resume import note_resume
from slime_core.sample import Group, GroupId, Json, Sample, Status
from slime_core.telemetry import MetricsLog, MetricsRow
from slime_view.samples.columns import schema
from slime_view.samples.shard import Kind, Shard, list_shards
from slime_view.spans import SpanLog
from tests.checkpoints import write_checkpoint
from tests.conftest import NO_STATE
from tests.tables import table

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMAS = DOCS / "schemas"


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_metrics(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        log.append(MetricsRow(0, 1, 1767225600.5, {"rollout/raw_reward": 0.5, "rollout/errors/time-out": 1}))
        log.append(MetricsRow(1, 1, 1767225601.5, {}))
    for line in lines(tmp_path / "metrics.jsonl"):
        validator("metrics_row").validate(line)


@table("reward", [1.0, {"score": 1.0, "format": 0.5}, None])
def test_samples(tmp_path: Path, write_samples: Callable[..., None], reward: float | dict[str, float] | None) -> None:
    text = Sample(prompt="What is 2+3?", response="5", response_length=2, label=5, reward=reward)
    text.status = Status.FAILED if reward is None else Status.COMPLETED
    chat = Sample(prompt=[{"role": "user", "content": "Hi"}], status=Status.TRUNCATED, weight_versions=["3", "4"])
    group = Group(GroupId("a:b", 0, 17, 17), [text, chat])
    write_samples(tmp_path, {0: [group]}, {2: {"held out": [text, chat]}})
    for kind in Kind:
        (path,) = list_shards(tmp_path, kind)
        rows = [row.to_dict() for row in Shard(path).rows()]
        assert len(rows) == 2
        for row in rows:
            validator("samples_row").validate(row)


def test_the_columns_of_a_shard() -> None:
    page = (DOCS / "formats.md").read_text("utf-8").partition("## Samples")[2].partition("## Ledger")[0]
    documented = [
        (name, types)
        for names, types in re.findall(r"^\| (`.*?`) \| (.*?) \|", page, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    ]
    shown = {"string": "text", "double": "float64", "float": "float32"}
    expected = []
    for field in schema():
        listed = pa.types.is_list(field.type)
        kind = str(field.type.value_type if listed else field.type)
        kind = shown.get(kind, kind)
        expected.append((field.name, (f"list of {kind}" if listed else kind) + (" or null" if field.nullable else "")))
    assert documented == expected


def test_the_ledger(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    trained, dropped = GroupId("train", 0, 0, 0), GroupId("train", 0, 1, 1)
    ledger.record(GroupState.DRAWN, [trained, dropped], 0)
    for state in (GroupState.FINISHED, GroupState.BUFFERED, GroupState.TRAINED):
        ledger.record(state, [trained], 0)
    ledger.drop({dropped: "all rewards are alike"}, 0)
    ledger.close()
    found = lines(tmp_path / "ledger.jsonl")
    assert len(found) == 6
    for line in found:
        validator("ledger_line").validate(line)


def test_resumes(tmp_path: Path) -> None:
    note_resume(tmp_path, 20)
    for line in lines(tmp_path / "resumes.jsonl"):
        validator("resumes_line").validate(line)


def test_spans(tmp_path: Path) -> None:
    spans = SpanLog(tmp_path / "spans.jsonl")
    spans.add_sample(GroupId("train", 0, 17, 17), 0, False, [("engine", 1.0), ("reward math", 1.5)], 2.0)
    spans.add_phase("generate", 3, 1.0, 2.5)
    asyncio.run(spans.write(3))
    (line,) = lines(tmp_path / "spans.jsonl")
    validator("spans_line").validate(line)
    (found,) = SpanLog.read(tmp_path / "spans.jsonl")
    assert [(each.name, each.rollout_id, each.ended - each.began) for each in found.phases] == [
        ("generate", 3, 1_500_000)
    ]
    (sample,) = found.samples
    assert [what for what, _ in sample.marks] == ["engine", "reward math"]
    assert [sample.marks[1][1] - sample.marks[0][1], sample.ended - sample.marks[1][1]] == [500_000, 500_000]


def test_a_checkpoint_manifest(tmp_path: Path) -> None:
    async def save_model(directory: Path) -> None:
        (directory / "hf").mkdir()
        (directory / "hf" / "config.json").write_text("{}")

    checkpoint = asyncio.run(write_checkpoint(tmp_path, 20, {**NO_STATE, "step": 20}, save_model, keep=1))
    manifest = json.loads((checkpoint.path / "manifest.json").read_text("utf-8"))
    validator("checkpoint_manifest").validate(manifest)
    assert set(manifest["files"]) == {"state.json", "hf/config.json"}


def test_every_example_in_the_page_fits_the_schema_it_is_shown_under() -> None:
    page = (DOCS / "formats.md").read_text("utf-8")
    sections = re.findall(r"\(schemas/(\w+)\.json\).*?```json\n(.*?)```", page, re.DOTALL)
    assert {name for name, _ in sections} == {path.stem for path in SCHEMAS.glob("*.json")}
    for name, examples in sections:
        for example in examples.splitlines():
            validator(name).validate(json.loads(example))
