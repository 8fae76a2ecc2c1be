"""Trainer: the driver's side of training, over one and two real ranks."""

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import pytest
from safetensors.numpy import load_file

from slime_core.batching.prepare import Preparation, TrainGroup
from slime_core.catalog import Catalog
from slime_core.config import ChosenRoles, Plan, parse_config, read_run_file, resolve
from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import Draw, LauncherSetup, Needs, TrainerSpec, WorkerGroup, WorkerGroupSpec
from slime_core.run import Trainer, TrainReport
from slime_core.run.trainer import call_ranks
from slime_core.sample import Group, GroupId, Json, Sample
from slime_testing.launcher import TARGET
from tests.conftest import Project

T = TypeVar("T")


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
    return Preparation().prepare(Draw(groups, [weight] * len(groups)), rollout_id=0)


def _nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def varied_groups() -> list[Group]:
    """Eight groups of four different responses each: no gradient is 0 but for rounding."""
    draw = random.Random(0)
    made = []
    for number in range(8):
        samples = []
        prompt = [draw.randrange(3, 200) for _ in range(5)]
        for index in range(4):
            sample = Sample(group_index=number, index=index, tokens=list(prompt), reward=draw.random())
            tokens = [draw.randrange(3, 200) for _ in range(draw.randrange(4, 12))]
            log_probs = [-5.5 + draw.random() for _ in tokens]
            sample.append_response_tokens(tokens=tokens, log_probs=log_probs, weight_version="0")
            samples.append(sample)
        made.append(Group(GroupId("made", 0, number, number), samples))
    return made


def test_two_ranks_train_as_one_does(plan_of: Callable[..., Plan], tmp_path: Path) -> None:
    """Every mean and weight to 1e-6, over rollouts of two steps, whitened over both ranks.

    AdamW makes of a gradient near 0 a step of up to `lr`, whichever way it was rounded: weights agree to a part of it.
    """
    keys: dict[str, Json] = {
        "lr": 1e-5,
        "num_steps_per_rollout": 2,
        "advantage": {"use": "reinforce_plus_plus_baseline"},
        "correction": {"use": "tis"},
    }
    reports: list[list[TrainReport]] = []
    weights = []
    for ranks in (1, 2):

        async def rollouts(trainer: Trainer, ranks: int = ranks) -> None:
            reports.append([await trainer.train(prepared(varied_groups()), rollout_id) for rollout_id in range(2)])
            await trainer.save(tmp_path / f"saved-{ranks}")
            await trainer.finish_save(wait=True)

        with_trainer(plan_of(ranks, **keys), tmp_path / f"scratch-{ranks}", rollouts)
        weights.append(load_file(tmp_path / f"saved-{ranks}" / "hf" / "model.safetensors"))
    for one, two in zip(*reports, strict=True):
        for step, same in zip(one.steps, two.steps, strict=True):
            for name, value in step.items():
                # Of one token alone, the last bits of its log-prob show.
                close = 1e-5 if "_ratio_" in name or name.endswith("_max") else 1e-6
                assert same[name] == pytest.approx(value, rel=close, abs=close), name
            assert same.keys() == step.keys()
        assert two.scores == pytest.approx(one.scores, rel=1e-6)
    for name, values in weights[0].items():
        assert weights[1][name] == pytest.approx(values, abs=1e-6), name


class Asked(Exception):
    """What a launcher was asked to start."""


@pytest.mark.parametrize(
    ("gpus", "nodes", "per_node"),
    [(1.0, 2, 2), (1.0, 1, 4), (0.0, 2, None)],
)
def test_ranks_on_gpus_lie_evenly_on_as_many_nodes_as_are_asked_for(
    plan_of: Callable[..., Plan], tmp_path: Path, gpus: float, nodes: int, per_node: int | None
) -> None:
    class Listening(LocalLauncher):
        async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
            raise Asked(spec.size, spec.per_node)

    plan = plan_of(4, actor_num_nodes=nodes, actor_num_gpus_per_node=4 // nodes)
    chosen = plan.roles.one(TrainerSpec)
    spec = replace(chosen.spec, needs=lambda settings: Needs(gpus=gpus))
    placed = replace(chosen, registered=replace(chosen.registered, spec=spec))
    plan = replace(plan, roles=ChosenRoles({**plan.roles, "trainer": (placed,)}))
    launcher = Listening(LauncherSetup(_nothing, 0, scratch=tmp_path))
    with pytest.raises(Asked) as asked:
        asyncio.run(Trainer.start(plan, launcher, tmp_path, train_steps=1))
    assert asked.value.args == (4, per_node)


def with_group(scratch: Path, use: Callable[[WorkerGroup], Awaitable[T]]) -> T:
    async def main() -> T:
        launcher = LocalLauncher(LauncherSetup(_nothing, 0, scratch=scratch))
        try:
            return await use(await launcher.start(WorkerGroupSpec("trainer", 2, TARGET, {"start": 0})))
        finally:
            await launcher.close()

    return asyncio.run(main())


def test_a_rank_that_was_stopped_is_named_with_its_process(tmp_path: Path) -> None:
    said: list[str] = []

    async def use(group: WorkerGroup) -> int:
        pid = cast(tuple[int, int, int], (await group.call("who"))[1])[2]
        os.kill(pid, signal.SIGSTOP)
        asked = asyncio.create_task(call_ranks(group, "add", [1, 1], 2.0, said.append))
        while len(said) < 2:  # noqa: ASYNC110  # each tenth of the limit
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGCONT)
        assert await asked == [1, 1]
        told = len(said)
        await asyncio.sleep(0.5)
        assert len(said) == told
        return pid

    pid = with_group(tmp_path, use)
    assert said[0].startswith("trainer: add has taken 0 s")
    assert f"; waiting for rank 1 (pid {pid})" in said[0]
