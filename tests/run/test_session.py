"""Session: the live parts of a run, with the tiny model in real processes."""

import asyncio
import gc
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.config import Plan, parse_config, read_run_file, resolve
from slime_core.errors import ModelError
from slime_core.run import RunFolder, Session
from slime_core.run.session import settled_heap
from slime_core.sample import Json
from tests.conftest import Project, workers
from tests.tables import table

PlanOf = Callable[..., Plan]


@pytest.fixture
def plan_of(project: Project) -> PlanOf:
    def make(**changes: Json) -> Plan:
        values = read_run_file(project.write_run(save=str(project.run), **changes))
        return resolve(parse_config(values), Catalog.discover())

    return make


def open_folder(plan: Plan) -> RunFolder:
    return RunFolder.open(plan.config.run.save, plan.config.to_dict())


def test_evaluation_leaves_the_training_state_as_it_was(project: Project, plan_of: PlanOf) -> None:
    project.write_prompts("eval.jsonl", 3)
    plan = plan_of(eval_prompt_data={"held": "eval.jsonl"}, eval_interval=1)

    async def around(session: Session) -> None:
        async with session:
            await session.publish(0)
            await session.scheduler.collect(0, want=2)
            before = [each.state_dict() for each in (session.source, session.buffer, session.ledger)]
            once, again = await session.evaluate(0), await session.evaluate(5)
            assert [each.state_dict() for each in (session.source, session.buffer, session.ledger)] == before
            assert once.metrics == again.metrics
            assert len(once.samples["held"]) == 3

    with open_folder(plan) as folder:
        asyncio.run(around(Session(plan, folder)))


def test_a_worker_that_cannot_be_built_leaves_no_process(project: Project, plan_of: PlanOf, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in project.model.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    plan = plan_of(hf_checkpoint=str(broken), trainer={"local": {"ranks": 2}})

    async def enter(session: Session) -> None:
        async with session:
            pytest.fail("it started")

    with open_folder(plan) as folder, pytest.raises(ModelError, match=r"num_hidden_layers` \(3\)"):
        asyncio.run(enter(Session(plan, folder)))
    assert workers() == []


def test_what_cannot_be_closed_keeps_nothing_else_open(plan_of: PlanOf, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise OSError("the engine's server does not answer")

    async def start(session: Session) -> None:
        async with session:
            monkeypatch.setattr(session.engine, "close", broken)

    plan = plan_of()
    with open_folder(plan) as folder, pytest.raises(OSError, match="does not answer"):
        asyncio.run(start(Session(plan, folder)))
    assert workers() == []


@table("asked_for", [700, 0, 10**6])
def test_the_heap_is_set_aside_and_collections_are_rare_only_within(asked_for: int) -> None:
    """A process that asked for fewer collections keeps that."""
    threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.set_threshold(asked_for, 10, 10)
    try:
        with settled_heap():
            assert gc.get_freeze_count() > frozen
            assert (gc.get_threshold()[0] > 700) if asked_for == 700 else (gc.get_threshold() == (asked_for, 10, 10))
        assert (gc.get_freeze_count(), gc.get_threshold()) == (0, (asked_for, 10, 10))
    finally:
        gc.set_threshold(*threshold)
