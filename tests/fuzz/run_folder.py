"""A run folder with one file damaged or planted: each reader gives an answer, or a SlimeError says what is wrong."""

import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st
from pyarrow import parquet

from slime_core.config import write_toml
from slime_core.errors import SlimeError
from slime_core.roles import Draw
from slime_core.run import GroupState, Ledger, RunFolder, newest_checkpoint
from slime_core.run.resume import note_resume
from slime_core.sample import Group, GroupId, Json, Sample, Status
from slime_core.telemetry import GeneratedGroups, MetricsLog, MetricsRow
from slime_view.cli.checkpoints import examine
from slime_view.ledger_view import LedgerView, read_resumes
from slime_view.run_reader import Comparison, GroupHistory, read_alarms, write_report
from slime_view.samples.store import SampleStore
from slime_view.spans import SpanLog
from slime_view.stored import StoredRollouts
from slime_view.trace import Trace
from tests.checkpoints import write_checkpoint

GROUPS = [GroupId("train", 0, row, row) for row in range(2)]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just(10**400)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner))
TEXTS = st.text(max_size=9) | VALUES.map(json.dumps) | st.just("[" * 9999)
HEADERS = st.fixed_dictionaries(
    {"schema_version": st.just(1), "kind": st.just("rollout") | LEAVES, "rollout_id": LEAVES},
    optional={"drawn": VALUES | st.lists(st.fixed_dictionaries({"group": LEAVES, "weight": LEAVES}), max_size=2)},
)


@cache
def whole() -> Path:
    """A run folder as a run writes it, by the same writers."""
    folder = Path(tempfile.mkdtemp()) / "run"
    asyncio.run(_write(folder))
    return folder


async def _write(folder: Path) -> None:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "run.toml").write_text(write_toml({"hf_checkpoint": "m", "seed": 3, "reward": {"use": "math"}}))
    ledger = Ledger(folder / "ledger.jsonl")
    spans = SpanLog(folder / "spans.jsonl")
    opened = time.monotonic()
    with MetricsLog(folder / "metrics.jsonl") as metrics, SampleStore(folder / "samples") as store:
        for number, group_id in enumerate(GROUPS):
            samples = [Sample(prompt="2+2?", response="4", index=index, reward=float(index)) for index in range(2)]
            for sample in samples:
                sample.status, sample.tokens, sample.response_length, sample.loss_mask = (
                    Status.COMPLETED,
                    [1, 2],
                    1,
                    [1],
                )
            group = Group(group_id, samples)
            await store.write(number, GeneratedGroups([group], [], {}), Draw([group], [1.0]))
            await store.write_eval(number, {"held": samples})
            for state in (GroupState.DRAWN, GroupState.FINISHED, GroupState.BUFFERED, GroupState.TRAINED):
                ledger.record(state, [group_id], number)
            spans.add_sample(group_id, 0, False, [("generator", opened)], opened + 1)
            with spans.phase("train", number):
                pass
            await spans.write(number)
            values = {"rollout/step": number, "rollout/raw_reward": 0.5, "eval/held": 0.5, "perf/step_time": 1.0}
            metrics.append(MetricsRow(number, number + 1, 1.0, values))
        await store.flush()
        saved: dict[str, Json] = {"step": 2, "metrics_position": metrics.position(), "plugins": {}, "config": {}}
        await write_checkpoint(folder / "checkpoints", 2, {**saved, "ledger": ledger.state_dict()}, _model, keep=2)
    ledger.close()
    note_resume(folder, 1)


async def _model(folder: Path) -> None:
    (folder / "hf").mkdir()
    (folder / "hf" / "config.json").write_text("{}")


def fuzz(data: st.DataObject) -> None:
    """Damage or replace one file, and read the folder in some ways."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place, "run")
        shutil.copytree(whole(), run)
        files = sorted(path.relative_to(run) for path in run.rglob("*"))
        files += 4 * [path for path in files if path.suffix == ".parquet"]
        _damage(data, run / data.draw(st.sampled_from(files)))
        for read in data.draw(st.lists(st.sampled_from(_readers(run)), min_size=1, max_size=4)):
            with suppress(SlimeError):
                read()
        assert sorted(path.name for path in Path(place).iterdir()) == ["run"]


def _readers(run: Path) -> list[Callable[[], object]]:
    return [
        lambda: read_alarms(run),
        lambda: read_resumes(run),
        lambda: GroupHistory.of(run, str(GROUPS[0])),
        lambda: Comparison.of(run, whole()),
        lambda: Trace.of(run).to_dict(),
        lambda: LedgerView.of(run).totals,
        lambda: [list(LedgerView.of(run).groups(state)) for state in GroupState],
        lambda: examine(run / "checkpoints", contents=True),
        lambda: newest_checkpoint(run / "checkpoints", lambda text: None),
        lambda: [stored.read(number) for stored in [StoredRollouts(run)] for number in range(len(stored))],
        lambda: write_report(run),
        lambda: RunFolder.locked(run).close(),
    ]


def _damage(data: st.DataObject, path: Path) -> None:
    kind = data.draw(
        st.sampled_from(["bytes", "flip", "cut", "json", "json", "json", "link", "pipe", "folder", "gone"])
    )
    if path.is_dir() or kind in ("link", "pipe", "folder", "gone"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        match kind:
            case "link":
                path.symlink_to(
                    data.draw(st.sampled_from(["/etc/hostname", "/dev/zero", str(whole()), "run.toml", "."]))
                )
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
        return
    old = path.read_bytes()
    at = data.draw(st.integers(0, max(0, len(old) - 1)))
    match kind:
        case "bytes":
            path.write_bytes(data.draw(st.binary(max_size=99)))
        case "flip":
            path.write_bytes(old[:at] + data.draw(st.binary(min_size=1, max_size=3)) + old[at + 1 :])
        case "cut":
            path.write_bytes(old[:at])
        case _ if path.suffix == ".parquet":
            _rewrite(data, path)
        case _:
            path.write_text("\n".join(map(json.dumps, _edited(data, old))) + "\n")


def _rewrite(data: st.DataObject, path: Path) -> None:
    """Replace one cell of a file of samples, or its header, by anything of the column's type."""
    table = parquet.read_table(path)
    name, rows = data.draw(st.sampled_from(["header", *table.schema.names])), table.to_pylist()
    if name == "header":
        table = table.replace_schema_metadata({"slime_core": json.dumps(data.draw(VALUES | HEADERS))})
    else:
        kind = table.schema.field(name).type
        cells = {pa.string(): TEXTS, pa.int64(): st.integers(-(2**63), 2**63 - 1), pa.float64(): st.floats()}
        lists = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3)
        rows[0][name] = data.draw(st.none() | cells.get(kind, st.booleans() if pa.types.is_boolean(kind) else lists))
        fields = [each.with_nullable(True) for each in table.schema]
        try:
            table = pa.Table.from_pylist(rows, pa.schema(fields, table.schema.metadata))
        except (pa.ArrowException, TypeError):
            assume(condition=False)
    parquet.write_table(table, path)


def _edited(data: st.DataObject, old: bytes) -> list[Json]:
    """The JSON of a file with one value in it replaced; any JSON where it holds none."""
    try:
        lines = [json.loads(line) for line in old.splitlines()]
    except ValueError:
        try:
            lines = [json.loads(old)]
        except ValueError:
            return [data.draw(VALUES)]
    place: Json = lines
    while isinstance(place, list | dict) and place:
        key = data.draw(st.sampled_from(range(len(place)) if isinstance(place, list) else sorted(place)))
        inner = place[key]  # type: ignore[index]
        if not isinstance(inner, list | dict) or not inner or data.draw(st.booleans()):
            place[key] = data.draw(VALUES)  # type: ignore[index,call-overload]
            break
        place = inner
    return lines
