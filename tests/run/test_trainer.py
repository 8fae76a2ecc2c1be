"""Trainer: the driver's side of training, over one and two real ranks."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from safetensors.numpy import load_file

from slime_core.catalog import Catalog
from slime_core.config import Plan, parse_config, read_run_file, resolve
from slime_core.local.launcher import LocalLauncher
from slime_core.roles import Draw, LauncherSetup
from slime_core.run import Trainer, TrainReport
from slime_core.sample import Group, Json
from slime_core.train.prepare import Preparation, TrainGroup

Project = Any
T = TypeVar("T")
REWARDS = ((0.0, 1.0, 0.0, 1.0), (1.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0), (0.0, 2.0, 1.0, 0.0))


@pytest.fixture
def groups(make_group: Callable[..., Group]) -> list[Group]:
    return [make_group(draw, rewards=rewards) for draw, rewards in enumerate(REWARDS)]


@pytest.fixture
def plan_of(project: Project) -> Callable[..., Plan]:
    def make(ranks: int, **changes: Json) -> Plan:
        path = project.write_run(save=str(project.run), trainer={"local": {"ranks": ranks}}, **changes)
        return resolve(parse_config(read_run_file(path)), Catalog.discover())

    return make


def with_trainer(plan: Plan, scratch: Path, use: Callable[[Trainer], Awaitable[T]]) -> T:
    async def main() -> T:
        launcher = LocalLauncher(LauncherSetup(_nothing, 0, scratch=scratch))
        try:
            return await use(await Trainer.start(plan, launcher, scratch, train_steps=10))
        finally:
            await launcher.close()

    scratch.mkdir(exist_ok=True)
    return asyncio.run(main())


def prepared(groups: list[Group], weight: float = 1.0) -> list[TrainGroup]:
    return Preparation().of(Draw(groups, [weight] * len(groups)), rollout_id=0)


def _nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def test_two_ranks_do_the_step_that_one_does(plan_of: Callable[..., Plan], groups: list[Group], tmp_path: Path) -> None:
    reports, weights = [], []
    for ranks in (1, 2):

        async def step(trainer: Trainer, ranks: int = ranks) -> None:
            reports.append(await trainer.train(prepared(groups), rollout_id=0))
            await trainer.save(tmp_path / f"saved-{ranks}")

        with_trainer(plan_of(ranks), tmp_path / f"scratch-{ranks}", step)
        weights.append(load_file(tmp_path / f"saved-{ranks}" / "hf" / "model.safetensors"))
    one, two = reports
    assert dict(two.steps[0]) == pytest.approx(dict(one.steps[0]), rel=1e-4, abs=1e-6)
    assert two.scores == pytest.approx(one.scores)
    for name, values in weights[0].items():
        assert weights[1][name] == pytest.approx(values, abs=1e-5), name


def test_every_group_gets_a_score_and_one_without_differences_scores_zero(
    plan_of: Callable[..., Plan], groups: list[Group], tmp_path: Path
) -> None:
    async def step(trainer: Trainer) -> TrainReport:
        return await trainer.train(prepared(groups), rollout_id=0)

    report = with_trainer(plan_of(2, num_steps_per_rollout=2), tmp_path / "scratch", step)
    assert len(report.steps) == 2
    assert report.scores.keys() == {group.id for group in groups}
    assert [report.scores[group.id] > 0 for group in groups] == [True, True, False, True]


def test_it_continues_from_what_it_saved(plan_of: Callable[..., Plan], groups: list[Group], tmp_path: Path) -> None:
    plan = plan_of(1)

    async def two_steps(trainer: Trainer) -> TrainReport:
        await trainer.train(prepared(groups), rollout_id=0)
        await trainer.save(tmp_path / "saved")
        return await trainer.train(prepared(groups[::-1]), rollout_id=0)

    async def second_step(trainer: Trainer) -> TrainReport:
        await trainer.load(tmp_path / "saved")
        return await trainer.train(prepared(groups[::-1]), rollout_id=0)

    whole = with_trainer(plan, tmp_path / "whole", two_steps)
    continued = with_trainer(plan, tmp_path / "continued", second_step)
    assert continued == whole


def test_a_group_of_weight_zero_teaches_nothing(
    plan_of: Callable[..., Plan], groups: list[Group], tmp_path: Path
) -> None:
    async def step(trainer: Trainer) -> TrainReport:
        return await trainer.train(prepared(groups[:1], 0.0), rollout_id=0)

    report = with_trainer(plan_of(1), tmp_path / "scratch", step)
    assert report.steps[0]["train/grad_norm"] == 0.0
